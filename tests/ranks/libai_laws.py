"""Laws of training runs on several ranks. The reference is the same run in plain torch, on whole batches."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
from global_rank import RANK, SIZE
from libai_runs import losses, metrics, reference, sample_order, shared_folder, trainer, weights

from libai.config.errors import ConfigError
from libai.utils import distributed as dist

_PIPELINE = ("train.dist.pipeline_parallel_size=2", "train.dist.pipeline_num_layers=3")
_ZERO = "train.zero_optimization={enabled:true,stage:"
_ACCUMULATE = "train.num_accumulation_steps=2"
_OPS = "graph.enabled=false"


def _same(*overrides: str, resume_at: int | None = None, first: tuple[str, ...] = ()) -> None:
    """A run with these settings has the losses, the accuracies and the weights of plain torch. With ``resume_at`` it is
    one that ran so far with the settings ``first``, was saved, and goes on with the others."""
    folder = shared_folder()
    begun: list[float] = []
    try:
        if resume_at is not None:
            earlier = trainer(folder, f"train.checkpointer.period={resume_at}", *first)
            earlier.max_iter = resume_at  # the config, and so the schedule, is that of the whole run
            super(type(earlier), earlier).train(0, resume_at)
            begun = losses(earlier) if RANK == 0 else []
            dist.synchronize()
            if RANK == 0:
                Path(folder, "last_checkpoint").write_text(f"model_{resume_at - 1:07d}")
            dist.synchronize()
        run = trainer(folder, *overrides, resume=resume_at is not None)
        results = run.train()
        found = weights(run)
        wanted, accuracies, values = reference(sample_order())
        for name, value in values.items():
            np.testing.assert_allclose(found[name], value, rtol=1e-4, atol=1e-5, err_msg=name)
        assert abs(results["Acc@1"] - accuracies[1]) < 1e-9, (results, accuracies)
        if RANK == 0:
            np.testing.assert_allclose(begun + losses(run), wanted, rtol=1e-5)
            assert Path(folder, "plan.html").exists() == (_OPS not in overrides)
            if resume_at is None:
                said = [line["Acc@1"] for line in metrics(folder) if "Acc@1" in line]
                np.testing.assert_allclose(said, accuracies, rtol=1e-9)
    finally:
        dist.synchronize()
        if RANK == 0:
            shutil.rmtree(folder)


def law_data_parallel() -> None:
    _same()


def law_data_parallel_with_accumulation_and_recomputation() -> None:
    _same(_ACCUMULATE, "train.activation_checkpoint.enabled=true", "train.amp.enabled=true")


def law_a_pipeline_without_micro_batches_is_refused() -> None:
    folder = shared_folder()
    try:
        trainer(folder, *_PIPELINE)
        raise AssertionError("the run was not refused")
    except ConfigError as error:
        assert "pipeline_parallel_size=2 with train.num_accumulation_steps=1" in str(
            error
        ) and "set train.num_accumulation_steps to 4" in str(error), error
    dist.synchronize()
    if RANK == 0:
        shutil.rmtree(folder)


def law_pipeline_with_micro_batches() -> None:
    _same(*_PIPELINE, _ACCUMULATE)


def law_zero_shares_states_out() -> None:
    _same(_ZERO + "1}")


def law_zero_shares_weights_out() -> None:
    _same(_ZERO + "3}")


def law_layouts_found_by_cost() -> None:
    _same("graph.auto_parallel.enabled=true")


def law_without_a_graph() -> None:
    _same(_OPS, "train.activation_checkpoint.enabled=true")


def law_pipeline_without_a_graph() -> None:
    _same(_OPS, *_PIPELINE)


def law_a_checkpoint_goes_on_in_another_layout() -> None:
    _same(*_PIPELINE, _ACCUMULATE, resume_at=2, first=(_ZERO + "1}",))


def law_an_interrupted_run_stops_at_the_same_iteration_everywhere() -> None:
    import signal

    from libai.engine.hooks import CallbackHook

    folder = shared_folder()
    run = trainer(folder, "train.evaluation.enabled=false", "train.train_iter=2000")
    # Only the last rank gets the signal.
    run.register_hooks(
        [
            CallbackHook(
                before_step=lambda t: signal.raise_signal(signal.SIGTERM) if t.iter == 3 and RANK == SIZE - 1 else None
            )
        ]
    )
    try:
        run.train()
        raise AssertionError("the run was not stopped")
    except SystemExit as ended:
        assert ended.code == 143, ended.code
    stopped = [dist.broadcast_py_object(run.iter, src) for src in range(SIZE)]
    assert len(set(stopped)) == 1 and 3 <= stopped[0] < 1999, stopped
    resumed = trainer(folder, "train.evaluation.enabled=false", f"train.train_iter={stopped[0] + 3}", resume=True)
    assert resumed.start_iter == stopped[0] + 1
    resumed.train()
    dist.synchronize()
    if RANK == 0:
        shutil.rmtree(folder)


def law_a_hook_stops_all_ranks_by_a_metric_of_rank_0() -> None:
    from libai.engine.hooks import CallbackHook, latest_metric

    folder = shared_folder()
    run = trainer(folder, "train.train_iter=2000")

    def stop_after_the_first_evaluation(t) -> None:
        if RANK != 0:
            t.storage.latest().pop("Acc@1", None)  # as where only rank 0 has the metric
        if latest_metric(t.storage, "Acc@1") is not None:
            t.stop()

    run.register_hooks([CallbackHook(after_step=stop_after_the_first_evaluation)])
    run.train()
    assert run.iter == run.max_iter == 3, (run.iter, run.max_iter)
    dist.synchronize()
    assert Path(folder, "last_checkpoint").read_text() == "model_final"
    resumed = trainer(folder, "train.train_iter=5", resume=True)
    assert resumed.start_iter == 3
    resumed.train()
    dist.synchronize()
    if RANK == 0:
        shutil.rmtree(folder)


def law_objects_are_told_to_all_ranks() -> None:
    import oneflow as flow

    assert dist.broadcast_py_object({"rank": RANK, "all": list(range(1000))}, src=SIZE - 1) == {
        "rank": SIZE - 1,
        "all": list(range(1000)),
    }
    dist.setup_dist_util({})
    value = dist.convert_to_distributed_default_setting(flow.full((2,), float(RANK)))
    assert value.is_global and dist.tton(value).tolist() == [0.0, 0.0]
    spread = flow.full((1,), float(RANK)).to_global(flow.placement.all("cpu"), flow.sbp.split(0))
    assert dist.ttol(spread).tolist() == list(range(SIZE)) and dist.ttol(spread, pure_local=True).tolist() == [RANK]
    assert dist.tensor_to_rank0(spread, to_local=True).tolist() == (list(range(SIZE)) if RANK == 0 else [])
    assert (dist.is_main_process(), dist.is_last_process(), dist.get_data_parallel_rank()) == (
        RANK == 0,
        RANK == SIZE - 1,
        RANK,
    )

"""How good a model is: evaluators, and the loop that feeds them."""

from libai.evaluation.bleu_evaluator import BLEUEvaluator
from libai.evaluation.cls_evaluator import ClsEvaluator
from libai.evaluation.evaluator import DatasetEvaluator, DatasetEvaluators, inference_context, inference_on_dataset
from libai.evaluation.ppl_evaluator import PPLEvaluator
from libai.evaluation.reg_evaluator import RegEvaluator
from libai.evaluation.utils import flatten_results_dict, print_csv_format

__all__ = [
    "BLEUEvaluator",
    "ClsEvaluator",
    "DatasetEvaluator",
    "DatasetEvaluators",
    "PPLEvaluator",
    "RegEvaluator",
    "flatten_results_dict",
    "inference_context",
    "inference_on_dataset",
    "print_csv_format",
]

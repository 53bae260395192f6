"""A small GPT that learns a text. text.file=... names one; without it the sonnets beside this folder are read."""

from libai.config import LazyCall, get_config
from libai.evaluation import PPLEvaluator
from libai.scheduler import WarmupCosineLR

text = dict(
    file="",  # plain text, in UTF-8
    folder="output/gpt_shakespeare/tokens",  # where its vocabulary and its tokens go
    vocab_size=512,
    prompt="\n",  # what samples go on from
    samples=2,
    temperature=0.8,
    top_k=40,
)

gpt = get_config("common/data/gpt_dataset.py")
tokenization, dataloader = gpt.tokenization, gpt.dataloader
tokenization.tokenizer.update(vocab_file="${text.folder}/vocab.json", merges_file="${text.folder}/merges.txt")
tokenization.make_vocab_size_divisible_by = 64
dataloader.train.update(num_workers=0, splits=[[9.0, 1.0, 0.0]])
dataloader.train.dataset[0].update(data_prefix="${text.folder}/text_document", max_seq_length=128)
dataloader.train.dataset[0].indexed_dataset.data_prefix = "${text.folder}/text_document"

model = get_config("common/models/gpt.py").pretrain_model
model.cfg.update(hidden_layers=4, hidden_size=128, ffn_hidden_size=512, num_attention_heads=4, max_seq_length=128)
model.cfg.update(embedding_dropout_prob=0.1, attention_dropout_prob=0.1, output_dropout_prob=0.1)

graph = get_config("common/models/graph.py").graph
optim = get_config("common/optim.py").optim
optim.update(lr=2e-3, weight_decay=0.1, betas=(0.9, 0.95))

train = get_config("common/train.py").train
train.update(
    output_dir="output/gpt_shakespeare",
    train_micro_batch_size=16,
    test_micro_batch_size=16,
    train_iter=1000,
    warmup_ratio=0.05,
    log_period=20,
)
train.evaluation.update(
    evaluator=LazyCall(PPLEvaluator)(), eval_period=250, eval_iter=10, eval_metric="lm_loss_PPL", eval_mode="min"
)
train.scheduler = LazyCall(WarmupCosineLR)(warmup_factor=0.01, alpha=0.1, warmup_method="linear")

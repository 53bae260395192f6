"""Trains, or evaluates, what a config describes:

python tools/train_net.py --config-file configs/config.py [--resume] [--eval-only] [--fast-dev-run] [key=value ...]
"""

from libai.train import run

if __name__ == "__main__":
    run()

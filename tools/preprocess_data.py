"""Turns texts, one JSON object on each line, into token files:

python tools/preprocess_data.py --input text.json --tokenizer-name GPT2Tokenizer --vocab-file vocab.json --merges-file
merges.txt --append-eod --output-prefix data/my
"""

from libai.preprocess import run

if __name__ == "__main__":
    run()

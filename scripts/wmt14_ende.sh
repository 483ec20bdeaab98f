#!/bin/sh
# Make the folder that experiment=wmt14_ende_base reads: sh scripts/wmt14_ende.sh FOLDER
#
# Train: Europarl 7, Common Crawl and News Commentary 9 (in OPUS's alignment), about 4.5 million
# pairs; valid: newstest2013; both by mtdata, which keeps downloads in ~/.mtdata and goes on where
# it was stopped. Test: the 3,003 pairs of newstest2014, by sacreBLEU. A folder that is made is left
# as it is. mtdata wants an older rich than we do, so that it needs an environment of its own:
#   pipx install mtdata==0.5.1
set -eu

if [ $# -ne 1 ]; then
    echo "error: give the folder to make: sh scripts/wmt14_ende.sh FOLDER" >&2
    exit 2
fi
for program in mtdata sacrebleu; do
    if ! command -v "$program" >/dev/null; then
        echo "error: $program is not on the PATH; see the head of scripts/wmt14_ende.sh" >&2
        exit 2
    fi
done

folder=$1
if [ -e "$folder/train.en" ]; then
    echo "$folder is there" >&2
    exit 0
fi
mkdir -p "$folder"
# mtdata takes corpora in the order of a set of strings; the hash seed makes it one and the same.
PYTHONHASHSEED=0 mtdata get --langs eng-deu --merge --out "$folder/mtdata" \
    --train Statmt-europarl_wmt13-7-deu-eng Statmt-commoncrawl_wmt13-1-deu-eng \
    OPUS-news_commentary-v9.1-deu-eng --dev Statmt-newstest-2013-eng-deu
sacrebleu --test-set wmt14/full --language-pair en-de --echo src >"$folder/test.en"
sacrebleu --test-set wmt14/full --language-pair en-de --echo ref >"$folder/test.de"
for side in eng:en deu:de; do
    ln -sf "mtdata/dev.${side%:*}" "$folder/valid.${side#*:}"
done
ln -sf mtdata/train.deu "$folder/train.de"
ln -sf mtdata/train.eng "$folder/train.en"

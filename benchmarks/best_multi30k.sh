#!/usr/bin/env bash
# Multi30k with data diversification, as in docs/multi30k.md: trains three models of each direction, translates the training set with all of
# them, trains a wider model on all of it with each seed, and scores these and their ensemble, each by beam search alone and reranked by the
# first model of the other direction. Run again, it resumes. It runs the `python` on PATH. The α of the translations were chosen on the
# validation set for English to German.
#     benchmarks/best_multi30k.sh TEXT_DIR OUTPUT_DIR [SOURCE TARGET [SEEDS [FLAGS ...]]]
# TEXT_DIR has train, val, test_2016_flickr, test_2017_flickr and test_2017_mscoco of both languages, such as train.en. FLAGS choose how
# grid.py and evaluate.py score: by default --lowercase --tokenize=none, for lower-cased, tokenised text; for raw text, give --tokenize=13a.
set -euo pipefail
if [[ $# -lt 2 || $# -eq 3 ]]; then
    echo "Usage: $0 TEXT_DIR OUTPUT_DIR [SOURCE TARGET [SEEDS [FLAGS ...]]], such as $0 multi30k/tok runs/best en de 1,2,3" >&2
    exit 1
fi
text=$(realpath -m "$1") output=$(realpath -m "$2") source=${3:-en} target=${4:-de} seeds=${5:-1,2,3}
cd "$(dirname "${BASH_SOURCE[0]}")/.."
python=${PYTHON:-python}
tests=(test_2016_flickr test_2017_flickr test_2017_mscoco)
scoring=("${@:6}")
(($# > 5)) || scoring=(--lowercase --tokenize=none)

# teacher FROM TO SEED: trains a model on the pairs alone.
teacher() {
    "$python" tools/train.py --flagfile=multi30k_en_de --norm=pre --warmup_steps=1000 --learning_rate_factor=1.79 --train_steps=3200 \
        --cooldown_steps=1200 --dtype=bfloat16 --valid_source="$text/val.$1" --valid_target="$text/val.$2" \
        --train_source="$text/train.$1" --train_target="$text/train.$2" --seed="$3" --model_dir="$output/$1_$2/seed$3"
}

# translate FROM TO SEED ALPHA: writes OUTPUT_DIR/seedSEED.TO.
translate() {
    [[ -e "$output/seed$3.$2" ]] || "$python" tools/translate.py --model_dir="$output/$1_$2/seed$3" --checkpoint=latest --beam_size=5 \
        --alpha="$4" --input="$text/train.$1" --output="$output/seed$3.$2"
}

# score NAME RUNS FLAGS: on the validation set and the test sets. Commas separate RUNS.
score() {
    for set in val "${tests[@]}"; do
        echo "$1, $set:"
        "$python" tools/evaluate.py --model_dir="$2" --checkpoint=latest --source="$text/$set.$source" \
            --reference="$text/$set.$target" "${scoring[@]}" "${@:3}"
    done
}

if [[ ! $seeds =~ ^[0-9]+(,[0-9]+)*$ ]]; then
    echo "Expected SEEDS to be whole numbers, as in 1,2,3. Received: $seeds." >&2
    exit 1
fi
if [[ -n $(tr , '\n' <<< "$seeds" | sort | uniq --repeated) ]]; then
    echo "Expected different SEEDS. Received: $seeds." >&2
    exit 1
fi
for each in "$source" "$target"; do
    for set in train val "${tests[@]}"; do
        [[ -r "$text/$set.$each" ]] || { echo "Expected $text/$set.$each. It is missing." >&2; exit 1; }
    done
done
# Wrong FLAGS end the script before the training.
"$python" tools/grid.py --only_check_args "${scoring[@]}"
"$python" tools/evaluate.py --only_check_args --reference="$text/val.$target" "${scoring[@]}"

train_source=$text/train.$source train_target=$text/train.$target
for seed in 1 2 3; do
    teacher "$source" "$target" "$seed"
    teacher "$target" "$source" "$seed"
    translate "$source" "$target" "$seed" 1.6
    translate "$target" "$source" "$seed" 1.0
    train_source+=,$text/train.$source,$output/seed$seed.$source
    train_target+=,$output/seed$seed.$target,$text/train.$target
done
test_files=()
for set in "${tests[@]}"; do
    test_files+=(--test_source="$text/$set.$source" --test_target="$text/$set.$target")
done
"$python" tools/grid.py --flagfile=multi30k_en_de_best --seeds="$seeds" --subwords_file="$output/${source}_$target/seed1/subwords.model" \
    --train_source="$train_source" --train_target="$train_target" \
    --valid_source="$text/val.$source" --valid_target="$text/val.$target" \
    "${test_files[@]}" "${scoring[@]}" --checkpoint=latest --output_dir="$output/students"
reranking=(--beam_size=10 --rerank_with="$output/${target}_$source/seed1" --rerank_direction=backward --rerank_weight=0.2)
for seed in ${seeds//,/ }; do
    score "Seed $seed, reranked" "$output/students/base/seed$seed" "${reranking[@]}"
done
if [[ $seeds == *,* ]]; then
    ensemble=$output/students/base/seed${seeds//,/,$output/students/base/seed}
    score "Ensemble" "$ensemble"
    score "Ensemble, reranked" "$ensemble" "${reranking[@]}"
fi

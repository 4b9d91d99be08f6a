#!/usr/bin/env bash
# One step of a perfci workflow. All input comes through the environment, so nothing of it is ever read as shell code.
set -euo pipefail
cd "${DIRECTORY:-.}"
export PATH="$RUNNER_TEMP/perfci-venv/bin:$PATH"

database=()
if [ -n "${PERFCI_DATABASE_URL:-}" ]; then
    database=(--db "$PERFCI_DATABASE_URL")
fi

case "$MODE" in
plan)
    read -r -a labels <<<"$GPU_LABELS"
    arguments=()
    for label in "${labels[@]}"; do arguments+=(--gpu "$label"); done
    read -r -a workloads <<<"$WORKLOAD"
    for workload in "${workloads[@]}"; do arguments+=(--workload "$workload"); done
    matrix="$(perfci plan --format github-matrix "${arguments[@]}")"
    {
        echo "matrix=$matrix"
        echo "count=$(python3 -c 'import json, sys; print(len(json.loads(sys.argv[1])["include"]))' "$matrix")"
    } >>"$GITHUB_OUTPUT"
    ;;
authorize)
    perfci authorize >>"$GITHUB_OUTPUT"
    ;;
measure)
    workload=()
    if [ -n "$WORKLOAD" ]; then workload=(--workload "$WORKLOAD"); fi
    name="$GPU-${WORKLOAD:-all}"
    code=0
    if [ -n "$BASE" ]; then
        command=compare
        revisions="$BASE...$HEAD_REVISION"
        perfci compare "$revisions" --measure --no-report "${workload[@]}" \
            -o "$RUNNER_TEMP/perfci-bundle/report-$name.html" || code=$?
    else
        command=run
        revisions="$HEAD_REVISION"
        perfci run "$revisions" --launches "${LAUNCHES:-5}" "${workload[@]}" || code=$?
    fi
    # The verdict belongs to the publisher: here only a failure to measure fails the job. The bundle is written in any
    # case, so that the failures of single launches are published, too.
    failed=()
    case "$code" in
    0 | 3 | 4) code=0 ;;
    *) failed=(--failed "perfci $command ended with exit code $code; the log of the measuring job says why") ;;
    esac
    perfci bundle "$revisions" "${workload[@]}" "${failed[@]}" -o "$RUNNER_TEMP/perfci-bundle/perfci-$name.json.gz"
    exit "$code"
    ;;
publish)
    bundles=()
    if [ -n "$BUNDLES" ] && [ -d "$BUNDLES" ]; then
        while IFS= read -r -d '' file; do bundles+=(--bundle "$file"); done \
            < <(find "$BUNDLES" -type f -name 'perfci-*.json.gz' -print0 | sort -z)
    fi
    options=()
    if [ -n "${ENDED:-}" ]; then options+=(--ended "$ENDED"); fi
    while IFS= read -r link; do
        if [ -n "$link" ]; then options+=(--link "$link"); fi
    done <<<"${LINKS:-}"
    perfci publish "${bundles[@]}" "${options[@]}" "${database[@]}"
    ;;
*)
    echo "perfci action: unknown mode '$MODE'" >&2
    exit 2
    ;;
esac

# Shared by build/demos/mesh and build/demos/all: certificates of a mesh, Envoys under pintle, applications. Whoever reads it in
# has set dir, pintle, envoy, grpc and the array started.
# shellcheck shell=bash disable=SC2154

# wait_for WHAT COMMAND...: polls with a deadline of a minute.
wait_for() {
    local what=$1 tries=0
    shift
    until "$@" >/dev/null 2>&1; do
        tries=$((tries + 1))
        [ "$tries" -lt 600 ] || { tail -n 5 "$dir"/*.log >&2; fail "see $what within a minute"; }
        sleep 0.1
    done
}

# An authority for the mesh, and certificates as it hands them out: who one is stands in the URI.
authority() {
    (cd "$dir" && openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 1 -subj "/CN=demo authority" \
        -keyout ca-key.pem -out ca.pem 2>/dev/null)
}
# sign NAME ALTERNATIVE_NAME: leaves a certificate of the authority in the current folder, cert-chain.pem, with its key, key.pem.
sign() {
    openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj "/CN=$1" -keyout key.pem -out "$dir/request.pem" &&
        openssl x509 -req -in "$dir/request.pem" -CA "$dir/ca.pem" -CAkey "$dir/ca-key.pem" -days 1 -out cert-chain.pem \
            -extfile <(echo "subjectAltName=$2")
} 2>/dev/null
# certify NAME ACCOUNT: a new certificate into NAME's volume, which is written as kubelet writes one.
turn=0
certify() {
    local volume=$dir/$1/certs old
    turn=$((turn + 1))
    local fresh=..2026_11_22_12_00_0$turn
    mkdir -p "$volume/$fresh"
    old=$(readlink "$volume/..data" || true)
    (
        cd "$volume/$fresh" || exit
        sign "$1" "URI:spiffe://cluster.local/ns/demo/sa/$2"
        cp "$dir/ca.pem" root-cert.pem
    )
    ln -s "$fresh" "$volume/..data_tmp"
    mv -T "$volume/..data_tmp" "$volume/..data"
    if [ -n "$old" ]; then
        rm -r "${volume:?}/$old"
    else
        local file
        for file in cert-chain key root-cert; do ln -s "..data/$file.pem" "$volume/$file.pem"; done
    fi
}

# proxy NAME ACCOUNT ADDRESS [ROLE]: an Envoy under pintle, a sidecar where nothing else is said; leaves its ports in the variables
# admin_NAME and status_NAME.
proxy() {
    local admin status
    admin=$(free_port) status=$(free_port)
    declare -g "admin_$1=$admin" "status_$1=$status"
    certify "$1" "$2"
    local certs=$dir/$1/certs side tls=()
    for side in SERVER CLIENT; do
        tls+=("ISTIO_META_TLS_${side}_CERT_CHAIN=$certs/cert-chain.pem" "ISTIO_META_TLS_${side}_KEY=$certs/key.pem"
            "ISTIO_META_TLS_${side}_ROOT_CERT=$certs/root-cert.pem")
    done
    env "${tls[@]}" INSTANCE_IP="$3" POD_NAME="$1" POD_NAMESPACE=demo ISTIO_META_INTERCEPTION_MODE=NONE \
        ISTIO_METAJSON_LABELS="{\"instance\": \"$1\", \"app\": \"$2\", \"security.istio.io/tlsMode\": \"istio\"}" \
        "$pintle" proxy "${4:-sidecar}" --config-path "$dir/$1/run" --binary-path "$envoy" --base-id auto --concurrency 1 \
        --discovery-address "127.0.0.1:$grpc" --proxy-admin-port "$admin" --status-port "$status" --cert-debounce 200ms \
        --drain-duration 2s --parent-shutdown-duration 3s --termination-drain-duration 0s -- --file-flush-interval-msec 100 \
        >"$dir/$1.log" 2>&1 &
    started+=($!)
}
# answers ADDRESS PORT NAME: an application.
answers() {
    python3 build/demos/mesh.py backend "$1" "$2" "$3" &
    started+=($!)
}

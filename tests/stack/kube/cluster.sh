# A real Kubernetes on this machine, by functions: start_api, start_network and start_node, stop_cluster. Needs $tools (hyperkube.sh,
# tools.sh) and $cluster, an empty directory; sets KUBECONFIG. Nodes of Debian need containerd, runc, iptables, dnsmasq-base
# and containernetworking-plugins. It has sockets and directories of its own; in iptables it makes chains KUBE-* and CNI-*,
# which stop_cluster removes. Pods are 10.88.7.0/24, services 10.96.0.0/16; the API server has the address of the pods' bridge, where
# pods reach it and no other machine does.
nodes=(node1 node2) runtime=/run/atoll-kube bridge=atollk0 pods=10.88.7 api_port=${api_port:-16443}

# on_node NODE ARGUMENT…: ctr with that node's containers.
on_node() { ctr -a "$runtime-$1.sock" -n k8s.io "${@:2}"; }

# start NAME COMMAND…: in the background, with its log and process id in $cluster.
start() {
    local name=$1
    shift
    "$@" >"$cluster/$name.log" 2>&1 &
    echo $! >"$cluster/$name.pid"
}

# The API server with its controllers: objects are admitted (PodSecurity, validation), controllers make pods of them.
start_api() {
    local peer=http://127.0.0.1:$((api_port + 2)) client=http://127.0.0.1:$((api_port + 1)) token
    ! iptables -t nat -S | grep -E '^-N (KUBE|CNI)-' >/dev/null ||
        fail "this machine has chains KUBE-* or CNI-* in iptables: another Kubernetes runs here, or one was not cleaned up"
    exec 8>"$runtime.lock"
    flock -n 8 || fail "another run of this test uses $runtime"
    ip netns list | awk '{print $1}' >"$cluster/spaces"  # of others
    touch "$cluster/started"
    cd "$cluster"
    ip link show $bridge >/dev/null 2>&1 || { ip link add $bridge type bridge && ip addr add $pods.1/24 dev $bridge; }
    ip link set $bridge up
    openssl genrsa -out sa.key 2048 2>/dev/null
    openssl req -x509 -newkey rsa:2048 -nodes -keyout api.key -out api.crt -days 30 -subj /CN=kube \
        -addext subjectAltName=IP:$pods.1,IP:10.96.0.1 2>/dev/null
    token=$(openssl rand -hex 16)
    (umask 077 && echo "$token,admin,admin,system:masters" >tokens.csv)
    start etcd "$tools/hyperkube" etcd --data-dir etcd --listen-client-urls "$client" --advertise-client-urls "$client" \
        --listen-peer-urls "$peer" --initial-advertise-peer-urls "$peer" --initial-cluster "default=$peer" --unsafe-no-fsync
    start apiserver "$tools/hyperkube" apiserver --etcd-servers "$client" --secure-port "$api_port" --bind-address $pods.1 \
        --tls-cert-file api.crt --tls-private-key-file api.key --token-auth-file tokens.csv --authorization-mode RBAC \
        --service-account-issuer https://kubernetes.default.svc --service-account-key-file sa.key \
        --service-account-signing-key-file sa.key --service-cluster-ip-range 10.96.0.0/16 --allow-privileged=true
    cat >kubeconfig <<END
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "https://$pods.1:$api_port", certificate-authority: $cluster/api.crt}}]
users: [{name: u, user: {token: $token}}]
contexts: [{name: c, context: {cluster: c, user: u}}]
current-context: c
END
    export KUBECONFIG=$cluster/kubeconfig
    within 120 kubectl get --raw /readyz >/dev/null 2>&1
    start controllers "$tools/hyperkube" controller-manager --kubeconfig kubeconfig --service-account-private-key-file sa.key \
        --root-ca-file api.crt --use-service-account-credentials=false --controllers '*,-nodeipam' \
        --secure-port $((api_port + 3)) --bind-address 127.0.0.1 --leader-elect=false
    cd "$OLDPWD"
}

# What the nodes share: the addresses and names of services, the scheduler. $debian is an image of Debian.
start_network() {
    cd "$cluster"
    mkdir -p net
    cat >net/10-bridge.conflist <<END
{"cniVersion": "0.4.0", "name": "atoll", "plugins": [{"type": "bridge", "bridge": "$bridge", "isGateway": true, "ipMasq": true,
 "hairpinMode": true, "ipam": {"type": "host-local", "dataDir": "$cluster/addresses", "ranges": [[{"subnet": "$pods.0/24"}]],
 "routes": [{"dst": "0.0.0.0/0"}]}}]}
END
    # The names of services: there before the first pod, which the bridge would wait for.
    touch names
    start names dnsmasq --keep-in-foreground --conf-file=/dev/null --no-resolv --no-hosts --addn-hosts="$cluster/names" --listen-address=$pods.1 \
        --bind-interfaces --local=/cluster.local/ --user=root --pid-file= --local-ttl=1
    cat >proxy.yaml <<END
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
clientConnection: {kubeconfig: $cluster/kubeconfig}
mode: iptables
clusterCIDR: $pods.0/24
conntrack: {maxPerCore: 0}
END
    start scheduler "$tools/hyperkubelet" scheduler --kubeconfig kubeconfig --authentication-kubeconfig kubeconfig \
        --authorization-kubeconfig kubeconfig --leader-elect=false --bind-address 127.0.0.1
    # One for all nodes: they have one network.
    start proxy "$tools/hyperkubelet" proxy --config proxy.yaml --hostname-override node1
    # Docker's policy for what passes through is DROP.
    iptables -I FORWARD -i $bridge -m comment --comment atoll-kube -j ACCEPT
    iptables -I FORWARD -o $bridge -m comment --comment atoll-kube -j ACCEPT
    # What goes to a service that has no pod at the moment leaves this machine for no other network, where somebody might answer.
    iptables -I FORWARD -d 10.96.0.0/16 -m comment --comment atoll-kube -j REJECT
    iptables -I OUTPUT -d 10.96.0.0/16 -m comment --comment atoll-kube -j REJECT
    start naming keep_names
    printf 'FROM %s\nCMD ["sleep", "infinity"]\n' "$debian" | docker build -q -t atoll-pause:1 - >/dev/null 2>&1
    cd "$OLDPWD"
}

# start_node NODE IMAGE…: joins this machine as that node, one of $nodes, with these images of Docker's.
start_node() {
    local node=$1 socket=$runtime-$1.sock port=$((10250 + 10 * (${1#node} - 1)))
    shift
    mkdir -p "$cluster/$node"
    cd "$cluster/$node"
    # A container without CAP_SYS_RESOURCE may not lower its oom_score_adj.
    cat >containerd.toml <<END
version = 2
root = "$cluster/$node/containerd"
state = "$runtime-$node"
[grpc]
  address = "$socket"
[plugins."io.containerd.grpc.v1.cri"]
  restrict_oom_score_adj = true
  sandbox_image = "docker.io/library/atoll-pause:1"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "$cluster/net"
END
    start "containerd-$node" containerd --config containerd.toml
    within 60 on_node "$node" version >/dev/null 2>&1
    docker save atoll-pause:1 "$@" | on_node "$node" images import - >/dev/null
    # Without cgroups of pods, and with logs of its own: a node would remove those that another made.
    cat >kubelet.yaml <<END
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
containerRuntimeEndpoint: unix://$socket
cgroupDriver: cgroupfs
cgroupsPerQOS: false
enforceNodeAllocatable: []
failSwapOn: false
failCgroupV1: false
clusterDNS: [$pods.1]
clusterDomain: cluster.local
address: 127.0.0.1
port: $port
healthzPort: $((port - 2))
evictionHard: {memory.available: 100Mi}
podLogsDir: $cluster/$node/logs
END
    grep -q " $node # atoll-kube$" /etc/hosts || echo "127.0.0.1 $node # atoll-kube" >>/etc/hosts  # where the API server asks the kubelet
    start "kubelet-$node" "$tools/hyperkubelet" kubelet --config kubelet.yaml --kubeconfig ../kubeconfig --root-dir "$cluster/$node/kubelet" \
        --hostname-override "$node"
    within 120 kubectl get node "$node" >/dev/null 2>&1
    kubectl wait --for=condition=Ready "node/$node" --timeout=120s >/dev/null
    cd "$OLDPWD"
}

# Has dnsmasq know each service's name.
keep_names() {
    local names before=
    while [ -e "$cluster/names.pid" ]; do
        names=$(kubectl get service -A -o jsonpath='{range .items[*]}{.spec.clusterIP}{" "}{.metadata.name}.{.metadata.namespace}.svc.cluster.local{"\n"}{end}' 2>/dev/null) || names=$before
        if [ "$names" != "$before" ]; then
            before=$names
            printf '%s\n' "$names" >"$cluster/names"
            kill -HUP "$(cat "$cluster/names.pid")"
        fi
        sleep 1
    done
}

stop_cluster() {
    local one node table chain rule
    [ -e "$cluster/started" ] || return 0
    [ ! -s "$cluster/kubeconfig" ] || kubectl delete pods -A --all --force --grace-period=1 --timeout=20s >/dev/null 2>&1 || true
    for one in naming "${nodes[@]/#/kubelet-}" scheduler proxy names controllers apiserver etcd; do
        [ ! -e "$cluster/$one.pid" ] || kill "$(cat "$cluster/$one.pid")" 2>/dev/null || true
    done
    for node in "${nodes[@]}"; do
        for one in $(on_node "$node" tasks ls -q 2>/dev/null); do
            on_node "$node" tasks rm -f "$one" >/dev/null 2>&1 || true
        done
        [ ! -e "$cluster/containerd-$node.pid" ] || kill "$(cat "$cluster/containerd-$node.pid")" 2>/dev/null || true
    done
    wait 2>/dev/null || true
    for table in filter nat mangle; do
        iptables -t $table -S | grep -E -- '-j (CNI-|KUBE-)|atoll-kube' | sed 's/^-A/-D/' | while read -r rule; do
            eval iptables -t $table "$rule" || true
        done
        for one in -F -X; do
            for chain in $(iptables -t $table -S | awk '/^-N (CNI|KUBE)/ {print $2}'); do iptables -t $table $one "$chain" || true; done
        done
    done 2>/dev/null || true
    for one in $(ip netns list | awk '$1 ~ /^cni-/ {print $1}'); do
        grep -qxF "$one" "$cluster/spaces" || ip netns delete "$one" || true
    done
    ip link del $bridge 2>/dev/null || true
    sed -i '/ node[12] # atoll-kube$/d' /etc/hosts 2>/dev/null || { sed '/ node[12] # atoll-kube$/d' /etc/hosts >"$cluster/hosts" && cat "$cluster/hosts" >/etc/hosts; }
    awk -v under="$cluster/" -v also="$runtime-" 'index($2, under) == 1 || index($2, also) == 1 {print $2}' /proc/mounts | sort -r |
        while read -r one; do umount -l "$one" 2>/dev/null || true; done
    rm -f "$runtime.lock"
    for node in "${nodes[@]}"; do rm -rf "$runtime-$node" "$runtime-$node.sock" "$runtime-$node.sock.ttrpc"; done
}

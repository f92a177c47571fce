{{- $meta := .ObjectMeta }}
{{- $said := $meta.Annotations }}
{{- $proxy := .ProxyConfig }}
{{- $metadata := $proxy.ProxyMetadata }}
{{- $mode := annotation $meta "sidecar.istio.io/interceptionMode" $proxy.InterceptionMode }}
{{- /* Numbers, since an annotation may begin with zeros, and YAML's numbers that do are others. */}}
{{- $statusPort := annotation $meta "status.sidecar.istio.io/port" (default $proxy.StatusPort $statusPort) | atoi }}
{{- $proxyUID := atoi $proxyUID }}
{{- $namespace := default "default" $meta.Namespace }}
{{- $workload := .DeploymentMeta.Name }}
{{- $app := default (default "istio-proxy" $workload) (index $meta.Labels "app") }}
{{- $revision := default "latest" (default (index $meta.Labels "version") (index $meta.Labels "app.kubernetes.io/version")) }}
{{- $canonical := default $workload (default (index $meta.Labels "app") (index $meta.Labels "app.kubernetes.io/name")) }}
{{- $hold := ((.Values.global).proxy).holdApplicationUntilProxyStarts }}
{{- $hold = or $proxy.HoldApplicationUntilProxyStarts.GetValue (and $hold (eq (toJson $hold) "true")) }}
{{- $hold = and $hold (ne $statusPort 0) (not .NativeSidecars) }}
{{- $first := "" }}
{{- range .Spec.Containers }}{{ if and (eq $first "") (ne .Name "istio-proxy") }}{{ $first = .Name }}{{ end }}{{ end }}
{{- if ne $proxy.DiscoveryAddress .MeshConfig.DefaultConfig.DiscoveryAddress }}{{ $discoveryAddress = "" }}{{ end }}
{{- $init := and (ne $mode "NONE") (not $cni) }}
{{- /* Core dumps: the administrator allows them, by the flag or by the values, and the pod asks. */}}
{{- $dump := or (eq $coreDump "true") (eq (toJson ((.Values.global).proxy).enableCoreDump) "true") }}
{{- $dump = and $dump (has (annotation $meta "sidecar.istio.io/enableCoreDump" "") (list "1" "t" "T" "TRUE" "true" "True")) }}
{{- $grace := .Spec.TerminationGracePeriodSeconds }}
{{- /* What is not set is 0 as well. */}}
{{- if not $grace }}{{ $grace = ternary 0 30 (hasKey .Spec "terminationGracePeriodSeconds") }}{{ end }}
{{- $tls := not (isset $meta.Labels "security.istio.io/tlsMode") }}
{{- $name := not (isset $meta.Labels "service.istio.io/canonical-name") }}
{{- $version := not (isset $meta.Labels "service.istio.io/canonical-revision") }}
{{- $rev := not (isset $said "istio.io/rev") }}
{{- $default := and $first (not (isset $said "kubectl.kubernetes.io/default-container")) }}
{{- $logs := and $first (not (isset $said "kubectl.kubernetes.io/default-logs-container")) }}
{{- /* Nothing is printed without something below it. */}}
{{- if or $tls $name $version $rev $default $logs }}
metadata:
  {{- if or $tls $name $version }}
  labels:
    {{- if $tls }}
    security.istio.io/tlsMode: istio
    {{- end }}
    {{- if $name }}
    service.istio.io/canonical-name: {{ $canonical | trunc 63 | trimAll "-_." | toJson }}
    {{- end }}
    {{- if $version }}
    service.istio.io/canonical-revision: {{ $revision | toJson }}
    {{- end }}
  {{- end }}
  {{- if or $rev $default $logs }}
  annotations:
    {{- if $rev }}
    istio.io/rev: {{ .Revision | toJson }}
    {{- end }}
    {{- if $default }}
    kubectl.kubernetes.io/default-container: {{ $first | toJson }}
    {{- end }}
    {{- if $logs }}
    kubectl.kubernetes.io/default-logs-container: {{ $first | toJson }}
    {{- end }}
  {{- end }}
{{- end }}
spec:
  {{- if or $init $dump }}
  initContainers:
  {{- end }}
  {{- if $init }}
  - name: istio-init
    image: {{ $initImage | toJson }}
    imagePullPolicy: {{ $imagePullPolicy }}
    args:
    - istio-iptables
    - -p
    - {{ .MeshConfig.ProxyListenPort }}
    - -z
    - {{ .MeshConfig.ProxyInboundListenPort }}
    - -u
    - {{ $proxyUID }}
    - -m
    - {{ $mode }}
    - -i
    - {{ annotation $meta "traffic.sidecar.istio.io/includeOutboundIPRanges" $includeIPRanges | toJson }}
    - -x
    - {{ annotation $meta "traffic.sidecar.istio.io/excludeOutboundIPRanges" $excludeIPRanges | toJson }}
    - -b
    - {{ annotation $meta "traffic.sidecar.istio.io/includeInboundPorts" $includeInboundPorts | replace " " "" | toJson }}
    - -d
    {{- $excluded := annotation $meta "traffic.sidecar.istio.io/excludeInboundPorts" $excludeInboundPorts | replace " " "" }}
    - {{ printf "15090%s%s" (ternary "" (print "," $statusPort) (eq $statusPort 0)) (ternary "" (print "," $excluded) (eq $excluded "")) | toJson }}
    {{- if isset $said "traffic.sidecar.istio.io/excludeOutboundPorts" }}
    - -o
    - {{ index $said "traffic.sidecar.istio.io/excludeOutboundPorts" | replace " " "" | toJson }}
    {{- end }}
    {{- if isset $said "traffic.sidecar.istio.io/includeOutboundPorts" }}
    - -q
    - {{ index $said "traffic.sidecar.istio.io/includeOutboundPorts" | replace " " "" | toJson }}
    {{- end }}
    {{- if isset $said "traffic.sidecar.istio.io/excludeInterfaces" }}
    - -c
    - {{ index $said "traffic.sidecar.istio.io/excludeInterfaces" | toJson }}
    {{- end }}
    {{- if or (isset $said "traffic.sidecar.istio.io/kubevirtInterfaces") (isset $said "istio.io/reroute-virtual-interfaces") }}
    - -k
    - {{ annotation $meta "istio.io/reroute-virtual-interfaces" (index $said "traffic.sidecar.istio.io/kubevirtInterfaces") | toJson }}
    {{- end }}
    securityContext:
      runAsUser: 0
      runAsGroup: 0
      runAsNonRoot: false
      privileged: false
      allowPrivilegeEscalation: false
      capabilities: {add: [NET_ADMIN, NET_RAW], drop: [ALL]}
    resources:
      requests: {cpu: 10m, memory: 10Mi}
      limits: {cpu: 100m, memory: 50Mi}
  {{- end }}
  {{- if $dump }}
  - name: enable-core-dump
    image: {{ $initImage | toJson }}
    imagePullPolicy: {{ $imagePullPolicy }}
    command: [sysctl]
    args: [-w, kernel.core_pattern=/var/lib/istio/core.proxy]
    securityContext: {runAsUser: 0, runAsGroup: 0, runAsNonRoot: false, privileged: true}
  {{- end }}
  containers:
  - name: istio-proxy
    image: {{ annotation $meta "sidecar.istio.io/proxyImage" $proxyImage | toJson }}
    imagePullPolicy: {{ $imagePullPolicy }}
    args:
    - proxy
    - sidecar
    - --configPath
    - {{ $proxy.ConfigPath | toJson }}
    - --binaryPath
    - {{ $proxy.BinaryPath | toJson }}
    - --serviceCluster
    - {{ printf "%s.%s" $app $namespace | toJson }}
    - --drainDuration
    {{- $drain := $proxy.DrainDuration }}
    {{- $parent := $proxy.ParentShutdownDuration }}
    - {{ formatDuration $drain }}
    {{- /* Releases since 1.17 know no end of a parent. Where the drain is as long, the proxy finds one that comes later. */}}
    {{- if gt $parent.Seconds $drain.Seconds }}
    - --parentShutdownDuration
    - {{ formatDuration $parent }}
    {{- end }}
    - --discoveryAddress
    - {{ annotation $meta "sidecar.istio.io/discoveryAddress" (default $proxy.DiscoveryAddress $discoveryAddress) | toJson }}
    {{- with $proxy.GetTracing }}
    {{- with .GetZipkin.GetAddress }}
    - --zipkinAddress
    - {{ . | toJson }}
    {{- end }}
    {{- with .GetLightstep }}
    - --lightstepAddress
    - {{ .GetAddress | toJson }}
    - --lightstepAccessToken
    - {{ .GetAccessToken | toJson }}
    - --lightstepSecure={{ .GetSecure }}
    - --lightstepCacertPath
    - {{ .GetCacertPath | toJson }}
    {{- end }}
    {{- with .GetDatadog.GetAddress }}
    - --datadogAgentAddress
    - {{ . | toJson }}
    {{- end }}
    {{- end }}
    - --connectTimeout
    - {{ formatDuration $proxy.ConnectTimeout }}
    {{- with $proxy.StatsdUdpAddress }}
    - --statsdUdpAddress
    - {{ . | toJson }}
    {{- end }}
    {{- with $proxy.EnvoyMetricsServiceAddress }}
    - --envoyMetricsServiceAddress
    - {{ . | toJson }}
    {{- end }}
    - --proxyAdminPort
    - {{ $proxy.ProxyAdminPort }}
    {{- with $proxy.Concurrency }}
    - --concurrency
    - {{ . }}
    {{- end }}
    - --controlPlaneAuthPolicy
    - {{ annotation $meta "sidecar.istio.io/controlPlaneAuthPolicy" $proxy.ControlPlaneAuthPolicy | toJson }}
    - --statusPort
    - {{ $statusPort }}
    - --applicationPorts
    {{- $ports := annotation $meta "readiness.status.sidecar.istio.io/applicationPorts" "*" | replace " " "" }}
    - {{ ternary (applicationPorts .Spec.Containers) $ports (eq $ports "*") | toJson }}
    {{- with .MeshConfig.TrustDomain }}
    - --trust-domain
    - {{ . | toJson }}
    {{- end }}
    {{- with $proxy.CustomConfigFile }}
    - --customConfigFile
    - {{ . | toJson }}
    {{- end }}
    {{- with $proxy.ProxyBootstrapTemplatePath }}
    - --templateFile
    - {{ . | toJson }}
    {{- end }}
    {{- with index $said "sidecar.istio.io/logLevel" }}
    - --proxyLogLevel
    - {{ . | toJson }}
    {{- end }}
    {{- with index $said "sidecar.istio.io/componentLogLevel" }}
    - --proxyComponentLogLevel
    - {{ . | toJson }}
    {{- end }}
    {{- with index $said "sidecar.istio.io/agentLogLevel" }}
    - --log_output_level
    - {{ . | toJson }}
    {{- end }}
    env:
    {{- /* A variable that proxyMetadata sets stands once. */}}
    {{- if not (isset $metadata "POD_NAME") }}
    - {name: POD_NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
    {{- end }}
    {{- if not (isset $metadata "POD_NAMESPACE") }}
    - {name: POD_NAMESPACE, valueFrom: {fieldRef: {fieldPath: metadata.namespace}}}
    {{- end }}
    {{- if not (isset $metadata "INSTANCE_IP") }}
    - {name: INSTANCE_IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}
    {{- end }}
    {{- if not (isset $metadata "SERVICE_ACCOUNT") }}
    - {name: SERVICE_ACCOUNT, valueFrom: {fieldRef: {fieldPath: spec.serviceAccountName}}}
    {{- end }}
    {{- if not (isset $metadata "HOST_IP") }}
    - {name: HOST_IP, valueFrom: {fieldRef: {fieldPath: status.hostIP}}}
    {{- end }}
    {{- if not (isset $metadata "ISTIO_META_NODE_NAME") }}
    - {name: ISTIO_META_NODE_NAME, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}
    {{- end }}
    {{- if not (isset $metadata "ISTIO_META_POD_NAME") }}
    - {name: ISTIO_META_POD_NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
    {{- end }}
    {{- if not (isset $metadata "ISTIO_META_CONFIG_NAMESPACE") }}
    - {name: ISTIO_META_CONFIG_NAMESPACE, valueFrom: {fieldRef: {fieldPath: metadata.namespace}}}
    {{- end }}
    {{- if not (isset $metadata "ISTIO_META_INTERCEPTION_MODE") }}
    - {name: ISTIO_META_INTERCEPTION_MODE, value: {{ $mode }}}
    {{- end }}
    {{- if and $workload (not (isset $metadata "ISTIO_META_WORKLOAD_NAME")) }}
    - {name: ISTIO_META_WORKLOAD_NAME, value: {{ $workload | toJson }}}
    {{- end }}
    {{- if and $workload (not (isset $metadata "ISTIO_META_OWNER")) }}
    - {name: ISTIO_META_OWNER, value: {{ printf "kubernetes://apis/%s/namespaces/%s/%ss/%s" .TypeMeta.APIVersion $namespace (toLower .TypeMeta.Kind) $workload | toJson }}}
    {{- end }}
    {{- if not (isset $metadata "ISTIO_META_CLUSTER_ID") }}
    - {name: ISTIO_META_CLUSTER_ID, value: Kubernetes}
    {{- end }}
    {{- if not (isset $metadata "ISTIO_METAJSON_LABELS") }}
    - {name: ISTIO_METAJSON_LABELS, value: {{ toJSON $meta.Labels | toJson }}}
    {{- end }}
    {{- $told := omit $said "kubectl.kubernetes.io/last-applied-configuration" }}
    {{- /* Servers before 1.27 write these by themselves, by each seccompProfile. */}}
    {{- range $name, $_ := $said }}{{ if contains "seccomp.security.alpha.kubernetes.io/" $name }}{{ $told = omit $told $name }}{{ end }}{{ end }}
    {{- if not (isset $metadata "ISTIO_METAJSON_ANNOTATIONS") }}
    - {name: ISTIO_METAJSON_ANNOTATIONS, value: {{ $told | toJSON | toJson }}}
    {{- end }}
    {{- if not (isset $metadata "TERMINATION_GRACE_PERIOD_SECONDS") }}
    - {name: TERMINATION_GRACE_PERIOD_SECONDS, value: {{ $grace }}}
    {{- end }}
    {{- $drain := $proxy.TerminationDrainDuration }}
    {{- /* Whole seconds: a part of one is one, or there would be no drain at all. */}}
    {{- $drain = add $drain.Seconds (min $drain.Nanos 1) }}
    {{- if and (ne $drain 5) (not (isset $metadata "TERMINATION_DRAIN_DURATION_SECONDS")) }}
    - {name: TERMINATION_DRAIN_DURATION_SECONDS, value: {{ $drain }}}
    {{- end }}
    {{- if and (isset $said "sidecar.istio.io/bootstrapOverride") (not (isset $metadata "ISTIO_BOOTSTRAP_OVERRIDE")) }}
    - {name: ISTIO_BOOTSTRAP_OVERRIDE, value: /etc/istio/custom-bootstrap/custom_bootstrap.json}
    {{- end }}
    {{- if not (isset $metadata "ISTIO_DELTA_XDS") }}
    - {name: ISTIO_DELTA_XDS, value: "true"}
    {{- end }}
    {{- range $name, $value := $metadata }}
    - {name: {{ $name | toJson }}, value: {{ $value | toJson }}}
    {{- end }}
    ports:
    - {name: http-envoy-prom, containerPort: 15090, protocol: TCP}
    {{- if ne $statusPort 0 }}
    readinessProbe:
      httpGet: {path: /healthz/ready, port: {{ $statusPort }}}
      initialDelaySeconds: {{ annotation $meta "readiness.status.sidecar.istio.io/initialDelaySeconds" $initialDelaySeconds | atoi }}
      periodSeconds: {{ annotation $meta "readiness.status.sidecar.istio.io/periodSeconds" $periodSeconds | atoi }}
      failureThreshold: {{ annotation $meta "readiness.status.sidecar.istio.io/failureThreshold" $failureThreshold | atoi }}
      timeoutSeconds: 3
    {{- end }}
    {{- if $hold }}
    lifecycle:
      postStart: {exec: {command: [pintle, wait, --url, "http://127.0.0.1:{{ $statusPort }}/healthz/ready"]}}
    {{- else if and .NativeSidecars (ne $statusPort 0) }}
    lifecycle:
      preStop: {exec: {command: [pintle, request, --debug-port, {{ $statusPort }}, POST, /drain]}}
    {{- end }}
    securityContext:
      {{- if eq $mode "TPROXY" }}
      runAsUser: 0
      runAsNonRoot: false
      capabilities: {add: [NET_ADMIN], drop: [ALL]}
      {{- else }}
      runAsUser: {{ $proxyUID }}
      runAsNonRoot: true
      capabilities: {drop: [ALL]}
      {{- end }}
      runAsGroup: {{ $proxyUID }}
      privileged: false
      allowPrivilegeEscalation: false
      readOnlyRootFilesystem: true
      seccompProfile: {type: RuntimeDefault}
    resources:
      requests:
        cpu: {{ annotation $meta "sidecar.istio.io/proxyCPU" "10m" | toJson }}
        memory: {{ annotation $meta "sidecar.istio.io/proxyMemory" "40Mi" | toJson }}
      {{- if or (isset $said "sidecar.istio.io/proxyCPULimit") (isset $said "sidecar.istio.io/proxyMemoryLimit") }}
      limits:
        {{- with index $said "sidecar.istio.io/proxyCPULimit" }}
        cpu: {{ . | toJson }}
        {{- end }}
        {{- with index $said "sidecar.istio.io/proxyMemoryLimit" }}
        memory: {{ . | toJson }}
        {{- end }}
      {{- end }}
    volumeMounts:
    - {name: istio-envoy, mountPath: {{ $proxy.ConfigPath | toJson }}}
    - {name: istio-certs, mountPath: /etc/certs, readOnly: true}
    {{- if $dump }}
    - {name: istio-core, mountPath: /var/lib/istio}
    {{- end }}
    {{- if isset $said "sidecar.istio.io/bootstrapOverride" }}
    - {name: custom-bootstrap-volume, mountPath: /etc/istio/custom-bootstrap, readOnly: true}
    {{- end }}
    {{- range $name, $mount := fromJSON (annotation $meta "sidecar.istio.io/userVolumeMount" "{}") }}
    - {{ merge (dict "name" $name) $mount | toJson }}
    {{- end }}
  volumes:
  - {name: istio-envoy, emptyDir: {medium: Memory}}
  - {name: istio-certs, secret: {optional: true, secretName: {{ printf "istio.%s" (default "default" .Spec.ServiceAccountName) | toJson }}}}
  {{- if $dump }}
  - {name: istio-core, emptyDir: {}}
  {{- end }}
  {{- if isset $said "sidecar.istio.io/bootstrapOverride" }}
  - {name: custom-bootstrap-volume, configMap: {name: {{ index $said "sidecar.istio.io/bootstrapOverride" | toJson }}}}
  {{- end }}
  {{- range $name, $volume := fromJSON (annotation $meta "sidecar.istio.io/userVolume" "{}") }}
  - {{ merge (dict "name" $name) $volume | toJson }}
  {{- end }}

{{- define "atoll.name" -}}
{{- printf "%s-%s" .Release.Name "atoll" | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{- define "atoll.labels" -}}
app.kubernetes.io/name: atoll
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{/* What a pod of ours may do: little. A line each: tests/stack/chart.sh takes them out one by one. */}}
{{- define "atoll.pod" -}}
automountServiceAccountToken: false
enableServiceLinks: false
{{- with .root.Values.image.pullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels: {{- include "atoll.labels" . | nindent 8 }}
securityContext:
  runAsNonRoot: true
  runAsUser: {{ .root.Values.image.uid }}
  runAsGroup: {{ .root.Values.image.uid }}
  fsGroup: {{ .root.Values.image.uid }}
  fsGroupChangePolicy: OnRootMismatch  # a full volume is not walked at each start
  seccompProfile:
    type: RuntimeDefault
{{- end -}}

{{- define "atoll.security" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}

{{- define "atoll.image" -}}
image: {{ printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext: {{- include "atoll.security" . | nindent 2 }}
{{- end -}}

{{- define "atoll.gatewayUrl" -}}
http://{{ include "atoll.name" . }}-gateway:{{ .Values.gateway.service.port }}
{{- end -}}

{{/* Where a service listens. nginx stands before the store (files.conf). */}}
{{- define "atoll.port" -}}
{{ ternary 8081 8080 (eq . "store") }}
{{- end -}}

{{/* The configuration of one service. Takes {root, component}. */}}
{{- define "atoll.config" -}}
{{- $values := .root.Values -}}
{{- $gateway := include "atoll.gatewayUrl" .root -}}
{{- $own := dict -}}
{{- if eq .component "store" -}}
{{- $own = dict "root" "/srv/atoll/blobs" "accel_prefix" "/internal/blobs/" -}}
{{- else if eq .component "dispatch" -}}
{{- $own = dict "private_key_file" "/credentials/keys/private.pem"
    "registry_url" (print $gateway "/registry") "store_url" (print $gateway "/store") "aggregation_url" (print $gateway "/aggregation")
    "store_url_for_sites" (print (required "gateway.publicUrl: the gateway's address as the facilities reach it" $values.gateway.publicUrl) "/store") -}}
{{- else if eq .component "aggregation" -}}
{{- $own = dict "token_file" "/credentials/keys/aggregation.token"
    "store_url" (print $gateway "/store") "dispatch_url" (print $gateway "/dispatch") -}}
{{- end -}}
listen_address: 0.0.0.0
port: {{ include "atoll.port" .component }}
postgres: ${ATOLL_POSTGRES}
postgres_connections: {{ $values.postgres.connections }}
kafka_brokers: {{ $values.kafka.brokers | quote }}
{{- if index $values.kafka.existingSecrets .component | default $values.kafka.existingSecret }}
kafka_credentials_file: /credentials/kafka/client.properties
{{- end }}
public_key_file: /credentials/keys/public.pem
log_level: {{ $values.logLevel }}
{{- if has .component (list "store" "dispatch") }}
request_bytes_max: 17039360  # above the gateway's 16 MiB for a blob and for a part of an image
{{- else }}
request_bytes_max: 1310720  # above the gateway's 1 MiB
{{- end }}
{{- range $key, $_ := index $values.settings .component }}
{{- if hasKey $own $key }}{{ fail (printf "settings.%s.%s: the chart sets it" $.component $key) }}{{ end }}
{{- end }}
{{- with merge $own (index $values.settings .component) }}
{{ $.component }}: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

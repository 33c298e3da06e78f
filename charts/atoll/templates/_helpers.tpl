{{- define "atoll.name" -}}
{{- printf "%s-%s" .Release.Name "atoll" | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{- define "atoll.labels" -}}
app.kubernetes.io/name: atoll
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{- define "atoll.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}

{{/* What every container of ours may do: little. */}}
{{- define "atoll.security" -}}
runAsNonRoot: true
runAsUser: 1000
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}

{{/* The container of one service. Takes {root, component}. */}}
{{- define "atoll.container" -}}
- name: {{ .component }}
  image: {{ include "atoll.image" .root }}
  imagePullPolicy: {{ .root.Values.image.pullPolicy }}
  command: [atoll-{{ .component }}, --config, /etc/atoll/{{ .component }}.yaml]
  env:
    - name: ATOLL_POSTGRES
      valueFrom: {secretKeyRef: {name: {{ .root.Values.postgres.secret }}, key: conninfo}}
  ports: [{name: http, containerPort: 8080}]
  livenessProbe: {httpGet: {path: /healthz, port: http}, periodSeconds: 10}
  readinessProbe: {httpGet: {path: /readyz, port: http}, periodSeconds: 5}
  securityContext: {{- include "atoll.security" .root | nindent 4 }}
  resources: {{- toYaml .root.Values.resources | nindent 4 }}
  volumeMounts:
    - {name: config, mountPath: /etc/atoll, readOnly: true}
    - {name: credentials, mountPath: /credentials, readOnly: true}
    - {name: tmp, mountPath: /tmp}
{{- end -}}

{{- define "atoll.volumes" -}}
- name: config
  configMap: {name: {{ include "atoll.name" .root }}}
- name: credentials
  secret:
    secretName: {{ .root.Values.credentials.secret }}
    defaultMode: 0440
    items:  # each service sees only what it needs: dispatch alone can sign
      - {key: public.pem, path: public.pem}
      {{- if eq .component "dispatch" }}
      - {key: private.pem, path: private.pem}
      {{- else if eq .component "aggregation" }}
      - {key: aggregation.token, path: aggregation.token}
      {{- end }}
- name: tmp
  emptyDir: {}
{{- end -}}

{{- define "turnwright.pullSecrets" -}}
{{- $secrets := list }}
{{- range .Values.imagePullSecrets }}{{- $secrets = append $secrets (dict "name" .) }}{{- end }}
{{- $secrets | toJson }}
{{- end }}

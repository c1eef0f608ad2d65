{{- define "fastadmit.name" -}}
{{ default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- /* 51 characters leave room for "-certificate". */ -}}
{{- define "fastadmit.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if .Values.fullnameOverride -}}
{{ .Values.fullnameOverride | trunc 51 | trimSuffix "-" }}
{{- else if contains $name .Release.Name -}}
{{ .Release.Name | trunc 51 | trimSuffix "-" }}
{{- else -}}
{{ printf "%s-%s" .Release.Name $name | trunc 51 | trimSuffix "-" }}
{{- end -}}
{{- end }}

{{- define "fastadmit.selectorLabels" -}}
app.kubernetes.io/name: {{ include "fastadmit.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- /* Of the pod of the Job that waits for the registration. The Service and all that selects fastadmit's pods must not select it. */ -}}
{{- define "fastadmit.checkLabels" -}}
app.kubernetes.io/name: {{ include "fastadmit.name" . }}-registration-check
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "fastadmit.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{ include "fastadmit.selectorLabels" . }}
app.kubernetes.io/version: {{ .Values.image.tag | default .Chart.AppVersion | trunc 63 | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- /* More labels of pods: podLabels override commonLabels. */ -}}
{{- define "fastadmit.podLabels" -}}
{{ merge (dict) .Values.podLabels .Values.commonLabels | toYaml }}
{{- end }}

{{- define "fastadmit.serviceAccountName" -}}
{{ .Values.serviceAccount.name | default (ternary (include "fastadmit.fullname" .) "default" .Values.serviceAccount.create) }}
{{- end }}

{{- define "fastadmit.image" -}}
{{ .Values.image.repository }}{{ if .Values.image.digest }}@{{ .Values.image.digest }}{{ else }}:{{ .Values.image.tag | default .Chart.AppVersion }}{{ end }}
{{- end }}

{{- define "fastadmit.certificateSecret" -}}
{{ .Values.certificates.secretName | default (printf "%s-certificate" (include "fastadmit.fullname" .)) }}
{{- end }}

{{- define "fastadmit.webhookName" -}}
{{ .Values.webhooks.name | default (printf "%s.io" (include "fastadmit.fullname" .)) }}
{{- end }}

{{- /* The webhook configurations, as kubectl takes them. */ -}}
{{- define "fastadmit.registered" -}}
{{- range $i, $configuration := .Values.certificates.webhookConfigurations -}}
{{ if $i }} {{ end }}{{ replace "/" "webhookconfigurations/" $configuration }}
{{- else -}}
mutatingwebhookconfigurations,validatingwebhookconfigurations {{ include "fastadmit.webhookName" . }}
{{- end -}}
{{- end }}

{{- /* "true" if fastadmit registers itself. */ -}}
{{- define "fastadmit.registersItself" -}}
{{- if and (eq .Values.certificates.mode "managed") (not .Values.certificates.webhookConfigurations) }}true{{ end -}}
{{- end }}

{{- /* "true" if fastadmit makes a path token and registers itself with it. */ -}}
{{- define "fastadmit.managedPathToken" -}}
{{- if and (include "fastadmit.registersItself" .) (ne (toString .Values.callers.pathToken) "false") }}true{{ end -}}
{{- end }}

{{- /* "true" if something says who may call. */ -}}
{{- define "fastadmit.callersKnown" -}}
{{- with .Values.callers }}
{{- if or .clientCAKey .tokensKey .passwordsKey .pathTokensKey (include "fastadmit.managedPathToken" $) }}true{{ end -}}
{{- end -}}
{{- end }}

{{- /* "true" if a plugin has a namespaceSelector, for which fastadmit must know the labels of namespaces. An empty one selects
all without asking. */ -}}
{{- define "fastadmit.needsNamespaces" -}}
{{- range $settings := concat (values .Values.plugins) (values (include "fastadmit.shadowChanges" . | fromYaml)) -}}
{{- range prepend ($settings.enforcement | default list) $settings -}}
{{- if .namespaceSelector }}true{{ end -}}
{{- end -}}
{{- end -}}
{{- end }}

{{- /* "true" if a match condition of a plugin asks about the rights of users. */ -}}
{{- define "fastadmit.needsAccess" -}}
{{- range $settings := concat (values .Values.plugins) (values (include "fastadmit.shadowChanges" . | fromYaml)) -}}
{{- range $settings.matchConditions -}}
{{- if contains "authorizer" .expression }}true{{ end -}}
{{- end -}}
{{- end -}}
{{- end }}

{{- /* What is known of plugins: of those that are built in, and of extraPlugins. */ -}}
{{- define "fastadmit.table" -}}
{{- $table := .Files.Get "files/plugins.yaml" | fromYaml -}}
{{- range $name, $plugin := .Values.extraPlugins -}}
{{- if hasKey $table $name -}}
{{- fail (printf "extraPlugins: got %s, which is built in" $name) -}}
{{- end -}}
{{- end -}}
{{ merge $table .Values.extraPlugins | toYaml }}
{{- end }}

{{- /* The plugins that follow custom resources of fastadmit's own or of other engines, with the kinds of their configurations. */ -}}
{{- define "fastadmit.following" -}}
{{- $table := include "fastadmit.table" . | fromYaml -}}
{{- $following := dict -}}
{{- range $phase := list "Mutating" "Validating" -}}
{{- $policies := $.Values.policies | default dict -}}
{{- if and (or $policies.customResources $policies.read) (hasKey $table (printf "%sAdmissionPolicy" $phase)) -}}
{{- $_ := set $following (printf "%sAdmissionPolicy" $phase) (printf "%sAdmissionPolicyConfiguration" $phase) -}}
{{- end -}}
{{- if and ($.Values.webhookConfigurations | default dict).customResources (hasKey $table (printf "%sAdmissionWebhook" $phase)) -}}
{{- $_ := set $following (printf "%sAdmissionWebhook" $phase) "WebhookAdmissionConfiguration" -}}
{{- end -}}
{{- end -}}
{{ toYaml $following }}
{{- end }}

{{- /* The plugins to run: with customResources of policies and webhookConfigurations, or policies.read, those that follow them too. */ -}}
{{- define "fastadmit.plugins" -}}
{{- $plugins := deepCopy .Values.plugins -}}
{{- range $name, $kind := include "fastadmit.following" . | fromYaml -}}
{{- $settings := get $plugins $name | default dict -}}
{{- $follows := dict "apiVersion" "fastadmit.io/v1alpha1" -}}
{{- $policies := $.Values.policies | default dict -}}
{{- if or (hasSuffix "Webhook" $name) $policies.customResources -}}
{{- $_ := set $follows "customResources" true -}}
{{- end -}}
{{- if and (hasSuffix "Policy" $name) $policies.read -}}
{{- $_ := set $follows "read" $policies.read -}}
{{- with $policies.exceptionsNamespace -}}
{{- $_ := set $follows "exceptionsNamespace" . -}}
{{- end -}}
{{- end -}}
{{- $configuration := merge $follows ($settings.configuration | default (dict "kind" $kind)) -}}
{{- $_ := set $plugins $name (merge (dict "configuration" $configuration) $settings) -}}
{{- end -}}
{{- range $plugin, $folder := include "fastadmit.policyFolders" . | fromYaml -}}
{{- $rules := list -}}
{{- range $name, $given := ($.Values.policies | default dict).shipped -}}
{{- $policy := (include "fastadmit.shippedPolicy" (dict "root" $ "name" $name "given" $given) | fromYaml).policy -}}
{{- if eq $policy.kind $plugin -}}
{{- range $policy.spec.matchConstraints.resourceRules -}}
{{- if not (has . $rules) -}}
{{- $rules = append $rules . -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if $rules -}}
{{- $settings := get $plugins $plugin | default dict -}}
{{- $kind := dict "apiVersion" "apiserver.config.k8s.io/v1" "kind" (printf "%sConfiguration" $plugin) -}}
{{- $configuration := merge (dict "staticManifestsDir" $folder) ($settings.configuration | default $kind) -}}
{{- $settings = merge (dict "configuration" $configuration) $settings -}}
{{- /* With customResources or read, fastadmit finds out by itself what it is to be called for. */ -}}
{{- if not (or $.Values.policies.customResources $.Values.policies.read) -}}
{{- $settings = merge $settings (dict "rules" $rules) -}}
{{- end -}}
{{- $_ := set $plugins $plugin $settings -}}
{{- end -}}
{{- end -}}
{{ toYaml $plugins }}
{{- end }}

{{- /* The plugins that run in the shadow and have other settings there, as fastadmit.plugins would be if the values of shadow were
moved to their places. Not for audits. */ -}}
{{- define "fastadmit.shadowChanges" -}}
{{- $changes := dict -}}
{{- with .Values.shadow -}}
{{- if and (or .plugins .policies.shipped) (not $.audit) -}}
{{- $values := deepCopy $.Values -}}
{{- range $name, $settings := .plugins -}}
{{- $_ := set $values.plugins $name (merge (deepCopy $settings) (pick (get $values.plugins $name | default dict) "configuration")) -}}
{{- end -}}
{{- $_ := set $values.policies "shipped" (merge (deepCopy .policies.shipped) $values.policies.shipped) -}}
{{- $moved := dict "Values" $values "Files" $.Files "Release" $.Release "Chart" $.Chart "Template" $.Template "Capabilities" $.Capabilities -}}
{{- $live := include "fastadmit.plugins" $ | fromYaml -}}
{{- $folders := include "fastadmit.policyFolders" $ | fromYaml -}}
{{- $tried := include "fastadmit.triedFolders" $ | fromYamlArray -}}
{{- range $name, $settings := include "fastadmit.plugins" $moved | fromYaml -}}
{{- $folder := get $folders $name | default "" -}}
{{- if has $folder $tried -}}
{{- $_ := set $settings.configuration "staticManifestsDir" (printf "shadow-%s" $folder) -}}
{{- end -}}
{{- if or (not (hasKey $live $name)) (ne (toYaml $settings) (toYaml (get $live $name))) -}}
{{- $_ := set $changes $name $settings -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{ toYaml $changes }}
{{- end }}

{{- /* The plugins that are only in the shadow. fastadmit is called for them with the failure policy Ignore. */ -}}
{{- define "fastadmit.shadowOnly" -}}
{{- $only := dict -}}
{{- $live := include "fastadmit.plugins" . | fromYaml -}}
{{- range $name, $settings := include "fastadmit.shadowChanges" . | fromYaml -}}
{{- if not (hasKey $live $name) -}}
{{- $_ := set $only $name (set $settings "failurePolicy" "Ignore") -}}
{{- end -}}
{{- end -}}
{{ toYaml $only }}
{{- end }}

{{- /* shadow in the configuration file. */ -}}
{{- define "fastadmit.shadow" -}}
{{- $changes := include "fastadmit.shadowChanges" . | fromYaml -}}
{{- if $changes -}}
{{- $settings := list -}}
{{- $configurations := list -}}
{{- range $name, $plugin := $changes -}}
{{- $settings = append $settings (merge (dict "name" $name) (omit $plugin "configuration")) -}}
{{- with $plugin.configuration -}}
{{- $configurations = append $configurations (dict "name" $name "configuration" .) -}}
{{- end -}}
{{- end -}}
enableAdmissionPlugins:
  {{- keys $changes | sortAlpha | toYaml | nindent 2 }}
plugins:
  {{- toYaml $settings | nindent 2 }}
admissionConfiguration:
  plugins:
    {{- toYaml $configurations | nindent 4 }}
processorPercent: {{ .Values.shadow.processorPercent }}
maxMemoryBytes: {{ int64 .Values.shadow.maxMemoryBytes }}
{{- end -}}
{{- end }}

{{- /* The folders of policies of the chart in the configuration volume, by the plugins that read them. */ -}}
{{- define "fastadmit.policyFolders" -}}
ValidatingAdmissionPolicy: policies
MutatingAdmissionPolicy: mutating-policies
{{- end }}

{{- /* The folder of a policy of the chart. */ -}}
{{- define "fastadmit.policyFolder" -}}
{{- get (include "fastadmit.policyFolders" . | fromYaml) (include "fastadmit.shippedPolicy" . | fromYaml).policy.kind -}}
{{- end }}

{{- /* The folders of policies that are tried. */ -}}
{{- define "fastadmit.triedFolders" -}}
{{- $folders := list -}}
{{- range $name, $given := .Values.shadow.policies.shipped -}}
{{- $folders = append $folders (include "fastadmit.policyFolder" (dict "root" $ "name" $name "given" $given)) -}}
{{- end -}}
{{ toYaml (uniq $folders) }}
{{- end }}

{{- /* A policy of the folder policies with its binding. */ -}}
{{- define "fastadmit.shippedPolicy" -}}
{{- $policy := .root.Files.Get (printf "policies/%s.yaml" .name) | fromYaml -}}
{{- if not $policy -}}
{{- $known := list -}}
{{- range $path, $_ := .root.Files.Glob "policies/*.yaml" -}}
{{- $known = append $known (base $path | trimSuffix ".yaml") -}}
{{- end -}}
{{- fail (printf "policies.shipped: got %s,%s want one of %s" .name (include "fastadmit.didYouMean" (dict "name" .name "names" $known)) (join ", " $known)) -}}
{{- end -}}
{{- $given := .given | default dict -}}
{{- range $name, $expression := $given.variables -}}
{{- $found := false -}}
{{- range $variable := $policy.spec.variables -}}
{{- if eq $variable.name $name -}}
{{- $found = true -}}
{{- $_ := set $variable "expression" $expression -}}
{{- end -}}
{{- end -}}
{{- if not $found -}}
{{- $has := list -}}
{{- range $policy.spec.variables -}}
{{- $has = append $has .name -}}
{{- end -}}
{{- if not $has -}}
{{- fail (printf "policies.shipped.%s.variables: got %s, want none: the policy has no variables" $.name $name) -}}
{{- end -}}
{{- fail (printf "policies.shipped.%s.variables: got %s,%s want one of %s" $.name $name (include "fastadmit.didYouMean" (dict "name" $name "names" $has)) (join ", " $has)) -}}
{{- end -}}
{{- end -}}
{{- $validates := eq $policy.kind "ValidatingAdmissionPolicy" -}}
{{- if and $given.validationActions (not $validates) -}}
{{- fail (printf "policies.shipped.%s.validationActions: got %s, want none: the policy changes objects" .name (join ", " $given.validationActions)) -}}
{{- end }}
policy: {{ toJson $policy }}
binding:
  apiVersion: {{ $policy.apiVersion }}
  kind: {{ $policy.kind }}Binding
  metadata:
    name: {{ $policy.metadata.name }}
  spec:
    policyName: {{ $policy.metadata.name }}
    {{- if $validates }}
    validationActions: {{ $given.validationActions | default (list "Warn") | toJson }}
    {{- end }}
    {{- with $given.matchResources }}
    matchResources: {{ toJson . }}
    {{- end }}
{{- end }}

{{- /* The configuration of tracing. */ -}}
{{- define "fastadmit.tracing" -}}
apiVersion: apiserver.config.k8s.io/v1
kind: TracingConfiguration
endpoint: {{ .Values.tracing.endpoint | quote }}
samplingRatePerMillion: {{ int64 .Values.tracing.samplingRatePerMillion }}
{{- end }}

{{- /* The volume with the configuration: the policies are in a folder below. */ -}}
{{- define "fastadmit.configurationVolume" -}}
name: configuration
configMap:
  name: {{ include "fastadmit.fullname" . }}
  {{- $tried := .Values.shadow.policies.shipped }}
  {{- if or .Values.policies.shipped $tried }}
  items:
  - {key: configuration.yaml, path: configuration.yaml}
  - {key: admission.yaml, path: admission.yaml}
  {{- if $.Values.tracing.endpoint }}
  - {key: tracing.yaml, path: tracing.yaml}
  {{- end }}
  {{- $triedFolders := include "fastadmit.triedFolders" $ | fromYamlArray }}
  {{- range $name, $given := .Values.policies.shipped }}
  {{- $folder := include "fastadmit.policyFolder" (dict "root" $ "name" $name "given" $given) }}
  - {key: policy.{{ $name }}.yaml, path: {{ $folder }}/{{ $name }}.yaml}
  {{- if and (has $folder $triedFolders) (not (hasKey $tried $name)) }}
  - {key: policy.{{ $name }}.yaml, path: shadow-{{ $folder }}/{{ $name }}.yaml}
  {{- end }}
  {{- end }}
  {{- range $name, $given := $tried }}
  {{- $folder := include "fastadmit.policyFolder" (dict "root" $ "name" $name "given" $given) }}
  - {key: shadow-policy.{{ $name }}.yaml, path: shadow-{{ $folder }}/{{ $name }}.yaml}
  {{- end }}
  {{- end }}
{{- end }}

{{- /* "true" for a plugin that asks to be sent only what custom resources select: where fastadmit registers itself. */ -}}
{{- define "fastadmit.narrowsItself" -}}
{{- if and (include "fastadmit.registersItself" .root) (hasKey (include "fastadmit.following" .root | fromYaml) .name) }}true{{ end -}}
{{- end }}

{{- /* The resources of other engines, by engine and group: those of engines in internal/policy. A test compares. */ -}}
{{- define "fastadmit.engines" -}}
kyverno:
  policies.kyverno.io: [validatingpolicies, namespacedvalidatingpolicies, mutatingpolicies, namespacedmutatingpolicies, policyexceptions,
    imagevalidatingpolicies, namespacedimagevalidatingpolicies, generatingpolicies, namespacedgeneratingpolicies, deletingpolicies,
    namespaceddeletingpolicies]
  kyverno.io: [clusterpolicies, policies, policyexceptions, cleanuppolicies, clustercleanuppolicies, globalcontextentries]
gatekeeper:
  templates.gatekeeper.sh: [constrainttemplates]
  constraints.gatekeeper.sh: ["*"]
  mutations.gatekeeper.sh: [assign, assignmetadata, modifyset, assignimage]
  expansion.gatekeeper.sh: [expansiontemplate]
  externaldata.gatekeeper.sh: [providers]
{{- end }}

{{- /* RBAC rules for what selectors and plugins need to know of the cluster and to do in it, one for each resource. */ -}}
{{- define "fastadmit.clusterRules" -}}
{{- $table := include "fastadmit.table" . | fromYaml -}}
{{- $needs := list -}}
{{- if include "fastadmit.needsNamespaces" . -}}
{{- $needs = list (dict "apiGroups" (list "") "resources" (list "namespaces") "verbs" (list "get" "list" "watch")) -}}
{{- end -}}
{{- if include "fastadmit.needsAccess" . -}}
{{- $needs = append $needs (dict "apiGroups" (list "authorization.k8s.io") "resources" (list "subjectaccessreviews") "verbs" (list "create")) -}}
{{- end -}}
{{- range $name, $settings := include "fastadmit.plugins" . | fromYaml -}}
{{- $needs = concat $needs ((get $table $name | default dict).cluster | default list) -}}
{{- end -}}
{{- /* Nothing is written in the shadow. */ -}}
{{- range $name, $settings := include "fastadmit.shadowOnly" . | fromYaml -}}
{{- range (get $table $name | default dict).cluster -}}
{{- $reads := without .verbs "create" "update" "patch" "delete" -}}
{{- if has "subjectaccessreviews" .resources -}}
{{- $reads = .verbs -}}
{{- end -}}
{{- if $reads -}}
{{- $needs = append $needs (set (deepCopy .) "verbs" $reads) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- range $phase := list "Mutating" "Validating" -}}
{{- with (get (include "fastadmit.plugins" $ | fromYaml) (printf "%sAdmissionWebhook" $phase) | default dict).configuration -}}
{{- if eq .apiVersion "fastadmit.io/v1alpha1" -}}
{{- $needs = append $needs (dict "apiGroups" (list "") "resources" (list "services") "verbs" (list "get")) -}}
{{- end -}}
{{- if .customResources -}}
{{- $kind := printf "%swebhookconfigurations" (lower $phase) -}}
{{- $needs = append $needs (dict "apiGroups" (list "webhooks.fastadmit.io") "resources" (list $kind) "verbs" (list "get" "list" "watch")) -}}
{{- $needs = append $needs (dict "apiGroups" (list "webhooks.fastadmit.io") "resources" (list (printf "%s/status" $kind)) "verbs" (list "update")) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- with .Values.policies -}}
{{- if .customResources -}}
{{- $needs = append $needs (dict "apiGroups" (list "policies.fastadmit.io") "resources" (list "policyreplicas") "verbs" (ternary (list "get" "list" "watch") (list "get" "list" "watch" "create" "delete") (not (not $.audit)))) -}}
{{- if not $.audit -}}
{{- $needs = append $needs (dict "apiGroups" (list "policies.fastadmit.io") "resources" (list "policyreplicas/status") "verbs" (list "update")) -}}
{{- end -}}
{{- range $kind := list "validatingadmissionpolicies" "validatingadmissionpolicybindings" "mutatingadmissionpolicies" "mutatingadmissionpolicybindings" "policyexceptions" -}}
{{- $plugin := ternary "MutatingAdmissionPolicy" "ValidatingAdmissionPolicy" (hasPrefix "mutating" $kind) -}}
{{- if hasKey $table $plugin -}}
{{- $needs = append $needs (dict "apiGroups" (list "policies.fastadmit.io") "resources" (list $kind) "verbs" (list "get" "list" "watch")) -}}
{{- if and (not (hasSuffix "bindings" $kind)) (not $.audit) -}}
{{- $needs = append $needs (dict "apiGroups" (list "policies.fastadmit.io") "resources" (list (printf "%s/status" $kind)) "verbs" (list "update")) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- range .read -}}
{{- range $group, $resources := get (include "fastadmit.engines" $ | fromYaml) . -}}
{{- range $resources -}}
{{- $needs = append $needs (dict "apiGroups" (list $group) "resources" (list .) "verbs" (list "get" "list" "watch")) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if and .read (not $.audit) -}}
{{- $needs = append $needs (dict "apiGroups" (list "") "resources" (list "events") "verbs" (list "create")) -}}
{{- end -}}
{{- if or .customResources .read -}}
{{- $needs = append $needs (dict "nonResourceURLs" (list "/api/*" "/apis/*") "verbs" (list "get")) -}}
{{- $needs = append $needs (dict "nonResourceURLs" (list "/openapi/v3" "/openapi/v3/*") "verbs" (list "get")) -}}
{{- range $of := .paramKinds -}}
{{- range .apiGroups -}}
{{- $group := . -}}
{{- range $of.resources -}}
{{- $needs = append $needs (dict "apiGroups" (list $group) "resources" (list .) "verbs" (list "get" "list" "watch")) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $rules := dict -}}
{{- range $needs -}}
{{- $key := printf "%s %s" (first (.resources | default .nonResourceURLs)) (first (.apiGroups | default (list ""))) -}}
{{- $known := get $rules $key | default dict -}}
{{- $_ := set $rules $key (set (deepCopy .) "verbs" (concat ($known.verbs | default list) .verbs | uniq)) -}}
{{- end -}}
{{- range $key := keys $rules | sortAlpha }}
{{ list (get $rules $key) | toYaml }}
{{- end -}}
{{- end }}

{{- /* "true" if fastadmit speaks with the API server. */ -}}
{{- define "fastadmit.needsAPI" -}}
{{- if or (eq .Values.certificates.mode "managed") (include "fastadmit.clusterRules" .) }}true{{ end -}}
{{- end }}

{{- /* What is the same for all webhooks: registration in the configuration file. */ -}}
{{- define "fastadmit.registration" -}}
{{- with .Values.webhooks -}}
name: {{ include "fastadmit.webhookName" $ }}
labels:
  {{- include "fastadmit.selectorLabels" $ | nindent 2 }}
  {{- with $.Values.commonLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with .annotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
clientConfig:
  service:
    namespace: {{ $.Release.Namespace }}
    name: {{ include "fastadmit.fullname" $ }}
    port: {{ $.Values.service.port }}
  {{- with $.Values.certificates.caBundle }}
  caBundle: {{ b64enc . }}
  {{- end }}
timeoutSeconds: {{ .timeoutSeconds }}
{{- $excluded := list }}
{{- with .excludedNamespaces }}
{{- $excluded = list (dict "key" "kubernetes.io/metadata.name" "operator" "NotIn" "values" .) }}
{{- end }}
{{- with include "fastadmit.selector" (list (dict "matchExpressions" $excluded) .namespaceSelector) | fromYaml }}
namespaceSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .objectSelector }}
objectSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .matchConditions }}
matchConditions:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}
{{- end }}

{{- /* One selector for what all of a list select. */ -}}
{{- define "fastadmit.selector" -}}
{{- $all := list -}}
{{- range . -}}
{{- range $key, $value := .matchLabels -}}
{{- $all = append $all (dict "key" $key "operator" "In" "values" (list $value)) -}}
{{- end -}}
{{- $all = concat $all (.matchExpressions | default list) -}}
{{- end -}}
{{- if $all -}}
{{ dict "matchExpressions" $all | toYaml }}
{{- else -}}
{}
{{- end -}}
{{- end }}

{{/*
The one of .names that shares the most sequences of three letters with .name, whatever their case; nothing if none shares half of them.
*/}}
{{- define "fastadmit.similar" -}}
{{- $name := lower .name -}}
{{- $pieces := list -}}
{{- range $i := until (max 0 (sub (len $name) 2) | int) -}}
{{- $pieces = append $pieces (substr $i (add $i 3 | int) $name) -}}
{{- end -}}
{{- $best := "" -}}
{{- $most := div (len $pieces) 2 | int -}}
{{- range $other := .names -}}
{{- $shared := 0 -}}
{{- range $pieces -}}
{{- if contains . (lower $other) -}}{{- $shared = add1 $shared | int -}}{{- end -}}
{{- end -}}
{{- if gt $shared $most -}}{{- $best = $other -}}{{- $most = $shared -}}{{- end -}}
{{- end -}}
{{- $best -}}
{{- end -}}

{{- /* The same, as what an error says before the names; nothing if none is similar. */ -}}
{{- define "fastadmit.didYouMean" -}}
{{- with include "fastadmit.similar" . }} did you mean {{ . }}? If not,{{ end -}}
{{- end -}}

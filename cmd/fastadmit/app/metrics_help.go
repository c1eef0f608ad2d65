package app

import "strings"

// help says what each metric is: the help texts of /metrics. Units are those of
// the names; times are in seconds since 1970.
var help = map[string]string{
	"fastadmit_accept_errors_total": "Attempts to accept a connection that failed, by port.",

	"fastadmit_audit_duration_seconds":           "How long the last audit took.",
	"fastadmit_audit_findings":                   "What plugins found in the last audit, by namespace; those of further namespaces have none.",
	"fastadmit_audit_last_run_timestamp_seconds": "When the last audit ended.",
	"fastadmit_audit_objects":                    "Objects of the last audit, by what became of them.",

	"fastadmit_budget_overruns_total": "Calls that kube-apiserver had given up before their answer was ready.",

	"fastadmit_build_info": "1, with the version of the binary and of Go.",

	"fastadmit_certificate_expiry_timestamp_seconds": "When the CA that signs, the leaf that is served, or what it is trusted by in registered webhooks expires; 0 if there is none.",
	"fastadmit_certificate_failures_total":           "Attempts to keep the certificates that failed, by what could not be read, written or reached.",
	"fastadmit_certificate_renewals_total":           "CAs and leaves made, and webhook configurations applied.",
	"fastadmit_certificate_repairs_total":            "Times that what was wrong in the Secret of the certificates was put right.",

	"fastadmit_cluster_access_refusals_total":   "Reviews denied, or answered with no permission, because of what kube-apiserver would be asked about their users: too many questions, or one that is too long.",
	"fastadmit_cluster_requests_given_up_total": "Requests of the API server whose time ended while they waited for their turn.",
	"fastadmit_cluster_requests_waiting":        "Requests of the API server that wait for their turn.",

	"fastadmit_cluster_kind_refusals_total": "Kinds that policies name as parameters and that are not watched: there are too many of them (kinds), or too much of one (bytes).",

	"fastadmit_cluster_live_requests_total":  "Objects asked of the API server because they were not known yet.",
	"fastadmit_cluster_objects":              "Objects known of the cluster.",
	"fastadmit_cluster_state_age_seconds":    "How long nothing was heard of the cluster.",
	"fastadmit_cluster_synced":               "1 when all objects have been read.",
	"fastadmit_cluster_watch_failures_total": "Times that the cluster could not be followed.",

	"fastadmit_config_reload_failures_total":                 "Changes of files that were refused; what was before stays in use.",
	"fastadmit_config_reload_last_success_timestamp_seconds": "When files were read last that are in use.",
	"fastadmit_config_reload_successes_total":                "Changes of files that took effect.",

	"fastadmit_connections":            "Open connections, by port.",
	"fastadmit_connections_max":        "How many connections a port may have open.",
	"fastadmit_connections_shed_total": "Connections closed to make room for new ones (full: there were too many; address: too many of strangers at one address), and new ones closed because none could make room (refused).",

	"fastadmit_image_policy_cache_hits_total":         "Pods that ImagePolicyWebhook decided about by an answer that it kept.",
	"fastadmit_image_policy_failed_open_total":        "Pods that ImagePolicyWebhook allowed because its backend did not answer.",
	"fastadmit_image_policy_request_duration_seconds": "How long requests to the backend of ImagePolicyWebhook took.",
	"fastadmit_image_policy_requests_total":           "Requests to the backend of ImagePolicyWebhook, by what it said; those that are sent again count again.",

	"fastadmit_initial_resources_cache_hits_total":       "Queries of InitialResources that a kept answer or failure saved.",
	"fastadmit_initial_resources_failed_estimates_total": "Requests that InitialResources did not set because its source failed or took too long.",
	"fastadmit_initial_resources_queries_total":          "Queries of InitialResources to its source of usage, by result.",
	"fastadmit_initial_resources_query_duration_seconds": "How long queries of InitialResources took.",

	"fastadmit_plugin_decisions_total":    "Runs of a plugin, by how they ended.",
	"fastadmit_plugin_duration_seconds":   "How long a plugin's runs take.",
	"fastadmit_plugin_panics_total":       "Panics of a plugin.",
	"fastadmit_plugins_not_started_total": "Plugins that were not started because the time of their call was over.",

	"fastadmit_podpreset_unapplied_total": "PodPresets that were not applied to a pod, because they are at odds with it or each other (conflict) or cannot be applied to any (invalid).",

	"fastadmit_policies":            "Policies that are evaluated.",
	"fastadmit_policy_checks_total": "Violations of a policy and errors of its expressions, by what becomes of the request.",
	"fastadmit_policy_cost":         "What the expressions of a policy cost for a binding and a request, in units of CEL.",

	"fastadmit_webhook_admission_duration_seconds":       "How long calls of the webhooks of others took.",
	"fastadmit_webhook_calls_inflight":                   "Calls of a webhook that are not answered yet.",
	"fastadmit_webhook_circuit_open":                     "1 while a webhook whose calls have failed is left alone.",
	"fastadmit_webhook_configurations_invalid":           "Custom resources for webhooks that are not valid, which nobody checked when they were written.",
	"fastadmit_webhook_fail_open_total":                  "Failures of a webhook that were ignored.",
	"fastadmit_webhook_limited_total":                    "Calls of a webhook that failed because too many were in flight.",
	"fastadmit_webhook_match_condition_exclusions_total": "Requests that the match conditions of a webhook left out.",
	"fastadmit_webhook_rejection_total":                  "Requests that were denied by a webhook or because its call failed.",
	"fastadmit_webhook_request_total":                    "Calls of a webhook, by what they came to.",

	"fastadmit_refused_requests_total":   "HTTP requests answered with an error, by its code.",
	"fastadmit_request_bytes_in_flight":  "Bytes of the bodies of requests, from when there is memory for one to its answer, without those that fit into a read buffer.",
	"fastadmit_request_bytes_total":      "Bytes of all reviews.",
	"fastadmit_request_duration_seconds": "How long reviews take, from when they were read to when their answer is ready.",
	"fastadmit_registered":               "1 when the webhook configurations are as this process wants them, with a caBundle that trusts what it serves; 0 when they are not or it cannot tell. /readyz?verbose says why.",
	"fastadmit_requests_in_flight":       "Reviews that were read and have no answer yet.",
	"fastadmit_requests_total":           "Reviews, by how they ended.",
	"fastadmit_response_bytes_total":     "Bytes of all answers to reviews.",

	"fastadmit_stuck_requests": "Calls whose plugin did not return in time; they were answered with an error.",

	"fastadmit_review_memory_refusals_total": "Reviews refused with 429 because others had taken the memory for them.",
	"fastadmit_review_memory_reserved_bytes": "Memory that large reviews, and small ones that take a lot, may take just now.",
	"fastadmit_too_large_objects_total":      "Reviews denied with 413 because of what plugins would make of their objects.",

	"fastadmit_serving_certificate_expiry_timestamp_seconds": "When the certificate that is served from files or from memory expires.",
	"fastadmit_tls_handshake_errors_total":                   "Connections that failed before their first request.",
}

// describe returns the help text of a metric, those of the process among them.
func describe(name string) string {
	switch text := help[name]; {
	case text != "":
		return text
	case strings.HasPrefix(name, "go_"):
		return "Of the Go runtime: see WriteProcessMetrics of github.com/VictoriaMetrics/metrics."
	default:
		return "Of the process, as Linux counts: see proc(5)."
	}
}

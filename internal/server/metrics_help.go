package server

import "strings"

// help has the help texts of /metrics. The names contain the units; timestamps are
// seconds since 1970.
var help = map[string]string{
	"fastadmit_accept_errors_total": "Failed attempts to accept a connection, by port.",

	"fastadmit_audit_duration_seconds":           "Duration of the last audit.",
	"fastadmit_audit_findings":                   "Findings of the last audit, by plugin, namespace and result; after 500 namespaces, the namespace is empty.",
	"fastadmit_audit_last_run_timestamp_seconds": "End of the last audit.",
	"fastadmit_audit_objects":                    "Objects of the last audit, by decision.",

	"fastadmit_budget_overruns_total": "Calls whose answer was ready only after kube-apiserver had given up.",

	"fastadmit_emulated_version_minor": "Minor release of Kubernetes 1 that plugins behave as, 34 for 1.34.",
	"fastadmit_build_info":             "1, with the version of the binary and of Go.",

	"fastadmit_certificate_expiry_timestamp_seconds": "Expiry of the signing CA, of the serving certificate, or of the caBundle in registered webhooks; 0 if there is none.",
	"fastadmit_certificate_failures_total":           "Failed attempts to maintain the certificates, by what could not be read, written or reached.",
	"fastadmit_certificate_renewals_total":           "Created CAs and serving certificates, and applied webhook configurations.",
	"fastadmit_certificate_repairs_total":            "Repairs of invalid data in the Secret of the certificates.",

	"fastadmit_cluster_access_refusals_total":   "Reviews denied, or answered without permission, because they need too many SubjectAccessReviews (many) or one that is too long (long).",
	"fastadmit_cluster_requests_given_up_total": "API requests whose time ended while they waited for their turn.",
	"fastadmit_cluster_requests_waiting":        "API requests that wait for their turn.",

	"fastadmit_cluster_kind_refusals_total": "Parameter kinds of policies that are not watched, because there are too many (kinds).",

	"fastadmit_cluster_bytes":                "Memory of the cached objects of the cluster, estimated.",
	"fastadmit_cluster_left_out_objects":     "Objects that are too large for the cache, or whose namespace has too many. Plugins ask the API server for them or deny requests of the namespace. /readyz?verbose names the namespaces.",
	"fastadmit_cluster_live_requests_total":  "API requests for objects and permissions that were not cached, and writes.",
	"fastadmit_cluster_objects":              "Cached objects of the cluster.",
	"fastadmit_cluster_state_age_seconds":    "Time since the last event of the watch.",
	"fastadmit_cluster_synced":               "1 when all objects have been read.",
	"fastadmit_cluster_watch_failures_total": "Failed lists and watches.",

	"fastadmit_config_reload_failures_total":                 "Changes of files that were refused; the previous configuration stays in use.",
	"fastadmit_config_reload_last_success_timestamp_seconds": "Time when the files in use were read.",
	"fastadmit_config_reload_successes_total":                "Changes of files that took effect.",

	"fastadmit_connections":            "Open connections, by port.",
	"fastadmit_connections_kept_bytes": "Memory that connections of known callers keep for their next requests.",
	"fastadmit_connections_max":        "Maximum of open connections, by port.",
	"fastadmit_connections_shed_total": "Connections closed to make room for new ones (full: too many in all; address: too many of unknown callers at one address), new ones closed because there was no room (refused), and ones closed because the client did not read its answer while others needed the memory (unread).",

	"fastadmit_image_policy_cache_hits_total":         "Pods that ImagePolicyWebhook decided by a cached answer.",
	"fastadmit_image_policy_failed_open_total":        "Pods that ImagePolicyWebhook allowed because its backend did not answer.",
	"fastadmit_image_policy_request_duration_seconds": "Duration of requests to the backend of ImagePolicyWebhook.",
	"fastadmit_image_policy_requests_total":           "Requests to the backend of ImagePolicyWebhook, by answer; retries count too.",

	"fastadmit_initial_resources_cache_hits_total":       "Queries of InitialResources that were answered from the cache.",
	"fastadmit_initial_resources_failed_estimates_total": "Resource requests that InitialResources did not set because its source failed or took too long.",
	"fastadmit_initial_resources_queries_total":          "Queries of InitialResources to its source of usage, by result.",
	"fastadmit_initial_resources_query_duration_seconds": "Duration of queries of InitialResources.",

	"fastadmit_match_condition_errors_total": "Match conditions of a plugin, its webhooks or its policies that could not be evaluated, by error. With the failure policy Ignore, what they select is skipped. Includes those of the shadow that are also enforced.",

	"fastadmit_plugin_decisions_total":    "Runs of a plugin, by decision.",
	"fastadmit_plugin_duration_seconds":   "Duration of a plugin's runs.",
	"fastadmit_plugin_panics_total":       "Panics of a plugin.",
	"fastadmit_plugins_not_started_total": "Plugins that were not started because the time of their call was over.",

	"fastadmit_podpreset_unapplied_total": "PodPresets that were not applied to a pod, because they conflict with it or each other (conflict) or are invalid (invalid).",

	"fastadmit_policies":                "Policies that are evaluated.",
	"fastadmit_policies_not_evaluated":  "Documents of Kyverno and Gatekeeper in the cluster of which something is not evaluated.",
	"fastadmit_policy_exceptions_total": "Exceptions that lifted what a plugin or a policy said, that would have but have expired, or that could not be evaluated, by result (lifted, expired, failed).",
	"fastadmit_policy_checks_total":     "Violations of a policy and errors of its expressions, by what happened to the request.",
	"fastadmit_policy_duration_seconds": "Time of an evaluation of a policy for a binding and a request. One in 16 evaluations is measured, beginning with the first.",
	"fastadmit_policy_cost":             "Cost of the expressions of a policy for a binding and a request, in CEL's units.",

	"fastadmit_unserved_rules": "Resources that pass without a plugin that is for them, because the API server serves them in versions that no rule of it names.",

	"fastadmit_traces_dropped_total": "Reviews without a span though they were sampled, because there were more than 100 per second.",

	"fastadmit_turns_given_up_total": "Long work for reviews whose time ended while it waited for its turn on a processor.",
	"fastadmit_turns_waited_total":   "How often long work for reviews waited for its turn on a processor.",

	"fastadmit_webhook_admission_duration_seconds":       "Duration of calls to other webhooks.",
	"fastadmit_webhook_calls_inflight":                   "Calls to a webhook that are in flight.",
	"fastadmit_webhook_circuit_open":                     "1 while a webhook is not called because it cannot be reached, or fails for several namespaces.",
	"fastadmit_webhook_circuit_open_tenants":             "Users in a namespace for which a webhook is not called because their calls have failed.",
	"fastadmit_webhook_configurations_invalid":           "Invalid custom resources for webhooks, which were stored without a check.",
	"fastadmit_webhook_fail_open_total":                  "Failures of a webhook that were ignored.",
	"fastadmit_webhook_limited_total":                    "Calls to a webhook that failed because too many were in flight.",
	"fastadmit_webhook_match_condition_exclusions_total": "Requests that the match conditions of a webhook excluded.",
	"fastadmit_webhook_rejection_total":                  "Requests denied by a webhook, or because its call failed.",
	"fastadmit_webhook_request_total":                    "Calls to a webhook, by result.",

	"fastadmit_refused_requests_total":   "HTTP requests answered with an error, by code.",
	"fastadmit_request_bytes_in_flight":  "Bytes of the request bodies in flight, without bodies that fit into a read buffer.",
	"fastadmit_request_bytes_total":      "Bytes of all reviews.",
	"fastadmit_request_duration_seconds": "Duration of reviews, from the complete request to the answer.",
	"fastadmit_registered":               "1 when the registered webhook configurations match those of this process and trust its certificate; 0 when they do not, or it is unknown. /readyz?verbose says why.",
	"fastadmit_requests_in_flight":       "Reviews that were read and are not answered yet.",
	"fastadmit_requests_total":           "Reviews, by decision.",
	"fastadmit_response_bytes_total":     "Bytes of all answers to reviews.",

	"fastadmit_shadow_differences_total":     "Answers of the shadow that differ, by the plugin and policy that cause it and by both answers: allowed, patched, warned, denied or failed. After 200 policies, others count as \"other\".",
	"fastadmit_shadow_plugin_failures_total": "Failures of plugins in the shadow, with panics.",
	"fastadmit_shadow_reviews_total":         "Reviews whose answers were compared with those of the shadow.",
	"fastadmit_shadow_stuck_reviews":         "Reviews of the shadow from which a plugin does not return.",
	"fastadmit_shadow_skipped_total":         "Reviews that the shadow skipped, because the server has much to do (load), too many reviews wait (queue), a review needs more memory than the shadow has (memory) or took too long (time), the configuration changed (reload), a plugin that the shadow leaves out denied or changed it (left_out), it could not be compared (error, panic), or a plugin does not return (stuck).",

	"fastadmit_stuck_requests": "Calls that were answered with an error because their plugin did not return in time, and whose plugin still runs.",

	"fastadmit_recordings_bytes":         "Size of the recordings in --record-dir, each file rounded up to 4 KiB.",
	"fastadmit_recordings_changed_total": "Recorded reviews from which secrets were left out.",
	"fastadmit_recordings_dropped_total": "Reviews that were not recorded: more than --record-rate (rate), too large (size), the disk is slower than the reviews (queue), the disk is full or broken (disk), the review is not JSON (unreadable).",
	"fastadmit_recordings_files":         "Recordings in --record-dir.",
	"fastadmit_recordings_total":         "Recorded reviews.",

	"fastadmit_review_memory_refusals_total": "Reviews refused with 429 because other reviews used the memory.",
	"fastadmit_review_memory_reserved_bytes": "Memory reserved for reviews that are large or need much memory.",
	"fastadmit_too_large_objects_total":      "Reviews denied with 413 because plugins would need too much memory for their objects.",

	"fastadmit_serving_certificate_expiry_timestamp_seconds": "Expiry of the serving certificate, from files or memory.",
	"fastadmit_tls_handshake_errors_total":                   "Connections that failed before their first request.",
}

// describe returns the help text of a metric, also for those of the Go runtime and the
// process.
func describe(name string) string {
	switch text := help[name]; {
	case text != "":
		return text
	case strings.HasPrefix(name, "go_"):
		return "Go runtime metric: see WriteProcessMetrics of github.com/VictoriaMetrics/metrics."
	default:
		return "Process metric of Linux: see proc(5)."
	}
}

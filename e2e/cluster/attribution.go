package cluster

import (
	"regexp"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fastadmit/fastadmit/admission"
)

// before matches what precedes the message of a denial by one of fastadmit's webhooks: the API
// server's text, and the name of the plugin from fastadmit.
var before = regexp.MustCompile(`^admission webhook "[^"]*fastadmit[^"]*" denied the request: [A-Za-z]+: `)

// Unattributed removes from the status of a denial the name of the webhook and plugin, and the UID of the
// review, which an in-tree denial does not have.
func Unattributed(status *metav1.Status) {
	status.Message = before.ReplaceAllString(status.Message, "")
	details := status.Details
	if details == nil || len(details.Causes) == 0 || details.Causes[len(details.Causes)-1].Type != admission.CauseAdmissionPlugin {
		return
	}
	details.Causes = details.Causes[:max(len(details.Causes)-2, 0)]
	if len(details.Causes) == 0 {
		details.Causes = nil
	}
	if details.Name == "" && details.Group == "" && details.Kind == "" && details.UID == "" &&
		details.RetryAfterSeconds == 0 && details.Causes == nil {
		status.Details = nil
	}
}

// attributions are the keys of audit annotations that fastadmit adds for policies and webhooks.
var attributions = append(slices.Clip(WebhookPlugins), "ValidatingAdmissionPolicy", "MutatingAdmissionPolicy", admission.CauseAdmissionReview)

// IsAttribution reports whether a key is that of an audit annotation which says which plugin of fastadmit decided, or the UID of
// the review. In-tree plugins have none.
func IsAttribution(key string) bool { return slices.Contains(attributions, key) }

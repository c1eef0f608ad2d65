package cluster

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Webhook is a webhook to register. Fields that are the same for all webhooks are left out.
type Webhook struct {
	URL           string
	CA            []byte
	Rules         []admissionregistrationv1.RuleWithOperations
	FailurePolicy admissionregistrationv1.FailurePolicyType // Fail if empty
	Timeout       int32                                     // in seconds, 10 if 0
	Versions      []string                                  // of AdmissionReview, v1 if empty
	Selector      *metav1.LabelSelector                     // of objects
	Namespaces    *metav1.LabelSelector
	Conditions    []admissionregistrationv1.MatchCondition
	Reinvoke      bool // if needed
	// Equivalent sends other versions of the resources converted.
	Equivalent bool
}

// Everything selects every request.
func Everything() []admissionregistrationv1.RuleWithOperations {
	return Rules("*", "*", "*", "*/*")
}

// Rules selects operations on resources of a group and version.
func Rules(operation, group, version string, resources ...string) []admissionregistrationv1.RuleWithOperations {
	return []admissionregistrationv1.RuleWithOperations{{
		Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.OperationType(operation)},
		Rule: admissionregistrationv1.Rule{
			APIGroups: []string{group}, APIVersions: []string{version}, Resources: resources,
		},
	}}
}

// Mutating registers webhooks in that order until the test ends, and waits until the API server
// uses them. The marker is a fastadmit with AlwaysDeny, which shows whether it does.
func (s *APIServer) Mutating(t testing.TB, marker Webhook, webhooks ...Webhook) {
	t.Helper()
	name := configurationName(t)
	configuration := &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for i, w := range append([]Webhook{marker.asMarker("mutate", name)}, webhooks...) {
		v := w.validating(i)
		hook := admissionregistrationv1.MutatingWebhook{
			Name: v.Name, ClientConfig: v.ClientConfig, Rules: v.Rules, FailurePolicy: v.FailurePolicy, MatchPolicy: v.MatchPolicy,
			ObjectSelector: v.ObjectSelector, NamespaceSelector: v.NamespaceSelector, MatchConditions: v.MatchConditions,
			SideEffects: v.SideEffects, TimeoutSeconds: v.TimeoutSeconds, AdmissionReviewVersions: v.AdmissionReviewVersions,
		}
		if w.Reinvoke {
			hook.ReinvocationPolicy = new(admissionregistrationv1.IfNeededReinvocationPolicy)
		}
		configuration.Webhooks = append(configuration.Webhooks, hook)
	}
	// The marker is called first. When it is gone, a validating webhook may still deny.
	register(t, s, s.Client.AdmissionregistrationV1().MutatingWebhookConfigurations(), configuration, Prefix(-1))
}

// Validating is Mutating for validating webhooks.
func (s *APIServer) Validating(t testing.TB, marker Webhook, webhooks ...Webhook) {
	t.Helper()
	name := configurationName(t)
	configuration := &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for i, w := range append([]Webhook{marker.asMarker("validate", name)}, webhooks...) {
		configuration.Webhooks = append(configuration.Webhooks, w.validating(i))
	}
	// Validating webhooks are called concurrently, so any of them may deny.
	register(t, s, s.Client.AdmissionregistrationV1().ValidatingWebhookConfigurations(), configuration, "denied the request")
}

// A registrar is the client of a kind of webhook configurations.
type registrar[C metav1.Object] interface {
	Create(context.Context, C, metav1.CreateOptions) (C, error)
	Delete(context.Context, string, metav1.DeleteOptions) error
}

// register creates a configuration and waits until the API server uses it. When the test ends, it deletes the configuration
// and waits until the API server's answers no longer contain the text gone.
func register[C metav1.Object](t testing.TB, s *APIServer, client registrar[C], configuration C, gone string) {
	t.Helper()
	if _, err := client.Create(context.Background(), configuration, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	name := configuration.GetName()
	s.awaitMarker(t, name, "")
	t.Cleanup(func() {
		if err := client.Delete(context.Background(), name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
		s.awaitMarker(t, name, gone)
	})
}

func configurationName(t testing.TB) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, strings.ToLower(t.Name())) + "." + strings.ToLower(rand.Text())
}

// WebhookName is the name of the webhook at that place in the list given to
// Mutating or Validating.
func WebhookName(i int) string { return fmt.Sprintf("w%d.fastadmit.example.com", i+1) }

// Prefix is what the API server puts before the message of its denials.
func Prefix(i int) string {
	return fmt.Sprintf("admission webhook %q denied the request: ", WebhookName(i))
}

// validating returns the webhook at place i; the first one is the marker.
func (w *Webhook) validating(i int) admissionregistrationv1.ValidatingWebhook {
	hook := admissionregistrationv1.ValidatingWebhook{
		Name:                    WebhookName(i - 1),
		ClientConfig:            admissionregistrationv1.WebhookClientConfig{URL: &w.URL, CABundle: w.CA},
		Rules:                   w.Rules,
		FailurePolicy:           new(admissionregistrationv1.Fail),
		MatchPolicy:             new(admissionregistrationv1.Exact),
		ObjectSelector:          w.Selector,
		NamespaceSelector:       w.Namespaces,
		MatchConditions:         w.Conditions,
		SideEffects:             new(admissionregistrationv1.SideEffectClassNone),
		AdmissionReviewVersions: []string{"v1"},
	}
	if w.FailurePolicy != "" {
		hook.FailurePolicy = &w.FailurePolicy
	}
	if w.Timeout != 0 {
		hook.TimeoutSeconds = &w.Timeout
	}
	if len(w.Versions) > 0 {
		hook.AdmissionReviewVersions = w.Versions
	}
	if w.Equivalent {
		hook.MatchPolicy = new(admissionregistrationv1.Equivalent)
	}
	return hook
}

// markerLabel is on config maps that the marker denies.
const markerLabel = "e2e.fastadmit.example.com/marker"

func (w Webhook) asMarker(phase, value string) Webhook {
	return Webhook{
		URL: w.URL + "/" + phase + "/AlwaysDeny", CA: w.CA,
		Rules:    Rules("CREATE", "", "v1", "configmaps"),
		Selector: &metav1.LabelSelector{MatchLabels: map[string]string{markerLabel: value[strings.LastIndex(value, ".")+1:]}},
	}
}

// awaitMarker waits until the API server uses the configuration. If gone is not empty, it waits
// until the API server's answers no longer contain that text.
func (s *APIServer) awaitMarker(t testing.TB, name, gone string) {
	t.Helper()
	marker := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Name: "marker", Labels: map[string]string{markerLabel: name[strings.LastIndex(name, ".")+1:]},
	}}
	dryRun := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	for deadline := time.Now().Add(startMax); ; time.Sleep(20 * time.Millisecond) {
		_, err := s.Client.CoreV1().ConfigMaps("default").Create(context.Background(), marker, dryRun)
		switch {
		case gone == "" && err != nil && strings.Contains(err.Error(), Prefix(-1)):
			return
		case gone != "" && (err == nil || !strings.Contains(err.Error(), gone)):
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the API server does not use webhook configuration %s; its last answer: %v", name, err)
		}
	}
}

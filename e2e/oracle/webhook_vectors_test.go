package oracle_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/webhook"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/generic"
	webhookrequest "k8s.io/apiserver/pkg/admission/plugin/webhook/request"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/testcerts"
	webhooktesting "k8s.io/apiserver/pkg/admission/plugin/webhook/testing"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	fastadmit "github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/cluster"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/handlers/mutatingadmissionwebhook"
	"github.com/fastadmit/fastadmit/handlers/validatingadmissionwebhook"
)

// vectorsNamespace is the namespace in upstream's tests.
const vectorsNamespace = "webhook-test"

// A vector is a test case of upstream, for either phase.
type vector = webhooktesting.MutatingTest

// TestWebhookVectors runs upstream's test cases for webhooks (k8s.io/apiserver
// pkg/admission/plugin/webhook/testing). It calls their webhooks by URL and by Service, over
// TLS, with the client certificate of the kubeconfig file.
func TestWebhookVectors(t *testing.T) {
	server := webhooktesting.NewTestServer(t)
	server.StartTLS()
	defer server.Close()
	base, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	ran := 0
	f := func(phase fastadmit.Phase, tests []vector) {
		for i := range tests {
			name := fmt.Sprintf("%v/%s", phase, tests[i].Name)
			if !isServed(&tests[i]) {
				continue
			}
			ran++
			t.Run(name, func(t *testing.T) { runVector(t, phase, base, &tests[i]) })
		}
	}
	validating := webhooktesting.ConvertToMutatingTestCases(webhooktesting.NewNonMutatingTestCases(base), "")
	for i, own := range webhooktesting.NewNonMutatingTestCases(base) {
		validating[i].ExpectAnnotations = own.ExpectAnnotations
	}
	f(fastadmit.Validate, validating)
	f(fastadmit.Mutate, webhooktesting.NewMutatingTestCases(base, "test-webhooks"))
	f(fastadmit.Mutate, webhooktesting.ConvertToMutatingTestCases(webhooktesting.NewNonMutatingTestCases(base), "test-webhooks"))
	if ran < 50 {
		t.Errorf("got %d cases, want most of upstream's", ran)
	}
}

// isServed reports whether current API servers would store the webhooks: they have a server,
// and allowed side effects.
func isServed(test *vector) bool {
	return !slices.ContainsFunc(test.Webhooks, func(w admissionregistrationv1.MutatingWebhook) bool {
		c := &w.ClientConfig
		return c.URL == nil && c.Service == nil ||
			w.SideEffects != nil && (*w.SideEffects == admissionregistrationv1.SideEffectClassSome ||
				*w.SideEffects == admissionregistrationv1.SideEffectClassUnknown)
	})
}

// makeValid makes upstream's webhook valid in the API, at the port of the server. It uses a
// Service if the path allows that.
func makeValid(w *admissionregistrationv1.MutatingWebhook, base *url.URL, port int32) {
	w.Name = vectorName(w.Name)
	if w.SideEffects == nil {
		w.SideEffects = new(admissionregistrationv1.SideEffectClassNone)
	}
	for i := range w.Rules {
		r := &w.Rules[i].Rule
		for _, list := range []*[]string{&r.APIGroups, &r.APIVersions, &r.Resources} {
			if len(*list) == 0 {
				*list = []string{"*"}
			}
		}
	}
	s := w.ClientConfig.Service
	if s == nil {
		return
	}
	at := "/"
	if s.Path != nil {
		at += strings.TrimPrefix(*s.Path, "/")
	}
	if at != strings.ToLower(at) {
		w.ClientConfig.Service, w.ClientConfig.URL = nil, new(base.String()+at)
		return
	}
	w.ClientConfig.Service = &admissionregistrationv1.ServiceReference{Namespace: s.Namespace, Name: s.Name, Port: &port, Path: &at}
}

// vectorName converts upstream's name of a webhook to a valid one.
func vectorName(name string) string {
	name = strings.ReplaceAll(strings.ToLower(name), " ", "-")
	if strings.Count(name, ".") >= 2 {
		return name
	}
	return name + ".hooks.example.com"
}

// vectorKubeconfig returns a kubeconfig with the client certificate.
func vectorKubeconfig(t *testing.T) []byte {
	config := clientcmdapi.NewConfig()
	config.AuthInfos["*"] = &clientcmdapi.AuthInfo{ClientCertificateData: testcerts.ClientCert, ClientKeyData: testcerts.ClientKey}
	text, err := clientcmd.Write(*config)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// vectorChain returns the plugin with the webhooks of a case.
func vectorChain(t *testing.T, phase fastadmit.Phase, base *url.URL, test *vector) *fastadmit.Chain {
	port, err := strconv.Atoi(base.Port())
	if err != nil {
		t.Fatal(err)
	}
	for i := range test.Webhooks {
		makeValid(&test.Webhooks[i], base, int32(port))
	}
	meta := metav1.ObjectMeta{Name: "test-webhooks"}
	var configuration runtime.Object = &admissionregistrationv1.MutatingWebhookConfiguration{
		TypeMeta:   metav1.TypeMeta{APIVersion: "admissionregistration.k8s.io/v1", Kind: "MutatingWebhookConfiguration"},
		ObjectMeta: meta, Webhooks: test.Webhooks,
	}
	plugin := mutatingadmissionwebhook.Plugin()
	if phase == fastadmit.Validate {
		plugin = validatingadmissionwebhook.Plugin()
		own := &admissionregistrationv1.ValidatingWebhookConfiguration{
			TypeMeta:   metav1.TypeMeta{APIVersion: "admissionregistration.k8s.io/v1", Kind: "ValidatingWebhookConfiguration"},
			ObjectMeta: meta,
		}
		for _, w := range test.Webhooks {
			own.Webhooks = append(own.Webhooks, admissionregistrationv1.ValidatingWebhook{
				Name: w.Name, ClientConfig: w.ClientConfig, Rules: w.Rules, FailurePolicy: w.FailurePolicy, MatchPolicy: w.MatchPolicy,
				NamespaceSelector: w.NamespaceSelector, ObjectSelector: w.ObjectSelector, SideEffects: w.SideEffects,
				TimeoutSeconds: w.TimeoutSeconds, AdmissionReviewVersions: w.AdmissionReviewVersions, MatchConditions: w.MatchConditions,
			})
		}
		configuration = own
	}
	document, err := json.Marshal(configuration)
	if err != nil {
		t.Fatal(err)
	}
	state, err := cluster.New(cluster.Options{Objects: []runtime.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: vectorsNamespace, Labels: map[string]string{"runlevel": "0"}}},
		&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "webhook-test"}, Spec: corev1.ServiceSpec{
			ClusterIP: base.Hostname(), Ports: []corev1.ServicePort{{Port: int32(port)}},
		}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	enabled := fastadmit.Enabled{
		Config:     []byte(`{"apiVersion":"fastadmit.io/v1alpha1","kind":"WebhookAdmissionConfiguration","auditPatches":true}`),
		Kubeconfig: vectorKubeconfig(t), Manifests: []fastadmit.File{{Name: "a.json", Content: document}},
	}
	if err := state.Follow(t.Context(), plugin.AllNeeds(enabled.Config)...); err != nil {
		t.Fatal(err)
	}
	chain, err := fastadmit.NewChain([]fastadmit.Plugin{plugin}, map[string]fastadmit.Enabled{plugin.Name: enabled}, state, nil)
	if err != nil {
		t.Fatal(err)
	}
	return chain
}

// vectorReview returns the review that kube-apiserver would send for a case.
func vectorReview(t *testing.T, test *vector) (review []byte) {
	attributes := webhooktesting.NewAttribute(vectorsNamespace, test.AdditionalLabels, test.IsDryRun)
	if test.IsCRD {
		attributes = webhooktesting.NewAttributeUnstructured(vectorsNamespace, test.AdditionalLabels, test.IsDryRun)
	}
	versioned := &admission.VersionedAttributes{
		Attributes: attributes, VersionedKind: attributes.GetKind(),
		VersionedObject:    admission.NewLazyObject(attributes.GetObject()),
		VersionedOldObject: admission.NewLazyObject(attributes.GetOldObject()),
	}
	hook := webhook.NewMutatingWebhookAccessor("x", "x", &admissionregistrationv1.MutatingWebhook{AdmissionReviewVersions: []string{"v1"}})
	_, asked, _, err := webhookrequest.CreateAdmissionObjects(versioned, &generic.WebhookInvocation{
		Webhook: hook, Resource: attributes.GetResource(), Kind: attributes.GetKind(),
	})
	if err != nil {
		t.Fatal(err)
	}
	asked.GetObjectKind().SetGroupVersionKind(asked.GetObjectKind().GroupVersionKind())
	if review, err = json.Marshal(asked); err != nil {
		t.Fatal(err)
	}
	return []byte(`{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1",` + strings.TrimPrefix(string(review), "{"))
}

func runVector(t *testing.T, phase fastadmit.Phase, base *url.URL, test *vector) {
	names := make(map[string]string)
	for i := range test.Webhooks {
		names[test.Webhooks[i].Name] = vectorName(test.Webhooks[i].Name)
	}
	chain := vectorChain(t, phase, base, test)
	review := codec.Acquire()
	defer review.Release()
	if err := review.Decode(vectorReview(t, test)); err != nil {
		t.Fatal(err)
	}
	if _, err := chain.Review(t.Context(), review, phase); err != nil {
		t.Fatal(err)
	}
	var answer struct {
		Response struct {
			Allowed          bool
			Status           metav1.Status
			Patch            []byte
			AuditAnnotations map[string]string
		}
	}
	if err := json.Unmarshal(review.AppendResponse(nil), &answer); err != nil {
		t.Fatal(err)
	}
	got := &answer.Response
	if got.Allowed != test.ExpectAllow || !strings.Contains(got.Status.Message, test.ErrorContains) ||
		!got.Allowed && test.ExpectStatusCode != 0 && got.Status.Code != test.ExpectStatusCode {
		t.Errorf("got %v %d %s, want %v %d %s", got.Allowed, got.Status.Code, got.Status.Message, test.ExpectAllow, test.ExpectStatusCode,
			test.ErrorContains)
	}
	if test.ExpectLabels != nil && got.Allowed {
		object := []byte(review.Object.Root().JSON())
		if got.Patch != nil {
			patch, err := jsonpatch.DecodePatch(got.Patch)
			if err == nil {
				object, err = patch.Apply([]byte(originalOf(t, test)))
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		var labeled struct{ Metadata metav1.ObjectMeta }
		if err := json.Unmarshal(object, &labeled); err != nil || !maps.Equal(labeled.Metadata.Labels, test.ExpectLabels) {
			t.Errorf("got labels %v, %v, want %v", labeled.Metadata.Labels, err, test.ExpectLabels)
		}
	}
	compareVectorAnnotations(t, test, names, got.AuditAnnotations)
}

// compareVectorAnnotations compares audit annotations, except those of the chain. Upstream's
// tests have only the first round of calls, and say which webhooks would be reinvoked.
func compareVectorAnnotations(t *testing.T, test *vector, names, got map[string]string) {
	want := make(map[string]string)
	again := make(map[string]bool)
	for key, value := range test.ExpectAnnotations {
		want[vectorKey(key)] = vectorValue(names, value)
	}
	maps.DeleteFunc(got, func(key, value string) bool {
		if strings.HasPrefix(key, "mutation.round_1_") {
			var called struct{ Webhook string }
			_ = json.Unmarshal([]byte(value), &called)
			again[called.Webhook] = true
		}
		for short, full := range names {
			if short != strings.ToLower(short) && strings.HasPrefix(key, full+".") {
				return true // upstream drops it, because the key is invalid
			}
		}
		return strings.HasSuffix(key, "AdmissionWebhook") || key == fastadmit.CauseAdmissionReview || strings.Contains(key, "round_1_")
	})
	if len(test.ExpectAnnotations) > 0 && !maps.Equal(got, want) {
		t.Errorf("got annotations\n%s\nwant\n%s", sortedPairs(got), sortedPairs(want))
	}
	wantAgain := make(map[string]bool)
	for name, called := range test.ExpectReinvokeWebhooks {
		if called {
			wantAgain[names[name]] = true
		}
	}
	if test.ExpectReinvokeWebhooks != nil && !maps.Equal(again, wantAgain) {
		t.Errorf("got %v called again, want %v", again, wantAgain)
	}
}

// originalOf returns the object of a case.
func originalOf(t *testing.T, test *vector) string {
	var review struct {
		Request struct{ Object json.RawMessage }
	}
	if err := json.Unmarshal(vectorReview(t, test), &review); err != nil {
		t.Fatal(err)
	}
	return string(review.Request.Object)
}

func sortedPairs(m map[string]string) (text string) {
	for _, key := range slices.Sorted(maps.Keys(m)) {
		text += key + "=" + m[key] + "\n"
	}
	return text
}

// vectorKey converts the key of an annotation to fastadmit's.
func vectorKey(key string) string {
	if about, round, ok := strings.Cut(key, "webhook.admission.k8s.io/"); ok {
		return about + round
	}
	name, key, _ := strings.Cut(key, "/")
	return vectorName(name) + "." + key
}

// vectorValue converts the names of webhooks in a value to valid ones.
func vectorValue(names map[string]string, value string) string {
	if full := names[value]; full != "" {
		return full
	}
	for short, full := range names {
		value = strings.ReplaceAll(value, strconv.Quote(short), strconv.Quote(full))
	}
	return value
}

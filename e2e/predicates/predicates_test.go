// Package predicates compares the predicates with which API servers choose webhooks for a request
// with fastadmit's, which choose plugins for a review of the same request. Where they differ,
// fastadmit's is wrong.
package predicates

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"
	"reflect"
	"slices"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/webhook"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/generic"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/predicates/namespace"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/predicates/object"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/predicates/rules"
	webhookrequest "k8s.io/apiserver/pkg/admission/plugin/webhook/request"
	"k8s.io/apiserver/pkg/authentication/user"
	webhookutil "k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	fastadmit "github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/admission/match"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/e2e/tally"
)

// A request is one as it reaches admission control.
type request struct {
	operation   admission.Operation
	kind        schema.GroupVersionKind
	resource    schema.GroupVersionResource
	subresource string
	namespace   string
	name        string
	// object and oldObject may be nil. Edits were made to the object by webhooks that the API
	// server called before.
	object, oldObject runtime.Object
	edits             []edit
	// asVersion is the version to which the API server converted the request for the webhook, empty
	// if it did not.
	asVersion string
}

// An edit sets a label, or removes it.
type edit struct {
	label, value string
	remove       bool
}

// attributes returns the attributes that the API server matches. If no rule matches the user's
// request, it matches the resource that the request is converted to.
func (r *request) attributes() (admission.Attributes, error) {
	edited := r.object
	if len(r.edits) > 0 {
		edited = r.object.DeepCopyObject()
		accessor, err := meta.Accessor(edited)
		if err != nil {
			return nil, err
		}
		ls := labels.Merge(accessor.GetLabels(), nil)
		for _, e := range r.edits {
			if ls[e.label] = e.value; e.remove {
				delete(ls, e.label)
			}
		}
		accessor.SetLabels(ls)
	}
	return r.record(edited, r.asResource()), nil
}

func (r *request) asResource() schema.GroupVersionResource {
	as := r.resource
	if r.asVersion != "" {
		as.Version = r.asVersion
	}
	return as
}

func (r *request) record(object runtime.Object, resource schema.GroupVersionResource) admission.Attributes {
	return admission.NewAttributesRecord(object, r.oldObject, r.kind, r.namespace, r.name, resource,
		r.subresource, r.operation, nil, false, &user.DefaultInfo{})
}

// review returns the AdmissionReview that the API server sends, before edits.
func (r *request) review() ([]byte, error) {
	attributes := r.record(r.object, r.resource)
	versioned := &admission.VersionedAttributes{Attributes: attributes, VersionedKind: r.kind,
		VersionedObject: admission.NewLazyObject(r.object), VersionedOldObject: admission.NewLazyObject(r.oldObject)}
	review := webhookrequest.CreateV1AdmissionReview("1", versioned,
		&generic.WebhookInvocation{Kind: r.kind, Resource: r.asResource(), Subresource: r.subresource})
	review.SetGroupVersionKind(admissionv1.SchemeGroupVersion.WithKind("AdmissionReview"))
	return json.Marshal(review)
}

// An answer is the result of a predicate. The Status is nil unless it failed.
type answer struct {
	Matches bool
	Status  *metav1.Status
}

func (a answer) String() string {
	if a.Status != nil {
		return fmt.Sprintf("code %d: %s", a.Status.Code, a.Status.Message)
	}
	return fmt.Sprint(a.Matches)
}

// Predicates, as they are called in the table of results.
const (
	byRules             = "rules"
	byNamespaceSelector = "namespaceSelector"
	byObjectSelector    = "objectSelector"
	byAll               = "rules and selectors"
)

var predicates = []string{byRules, byNamespaceSelector, byObjectSelector, byAll}

// A world contains both implementations and one cluster.
type world struct {
	webhooks   *generic.Webhook
	namespaces namespace.Matcher
}

// The labels of namespaces. The API server's cache has those in known. It gets the others by live
// requests, which fail for "broken".
var (
	known = map[string]map[string]string{
		"shop": {"a": "x", "tier": "web"}, "bare": nil, "blank": {"a": "", "example.com/b": "1"}, "1": {"runlevel": "1"},
	}
	live = map[string]map[string]string{"new": {"a": "y"}, "new-bare": nil}
)

func newWorld(t *testing.T) *world {
	t.Helper()
	client, err := kubernetes.NewForConfig(&rest.Config{Transport: roundTripper(serveNamespace), QPS: -1})
	if err != nil {
		t.Fatal(err)
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	cached := factory.Core().V1().Namespaces()
	for name, ls := range known {
		if err := cached.Informer().GetStore().Add(newNamespace(name, ls)); err != nil {
			t.Fatal(err)
		}
	}
	webhooks, err := generic.NewWebhook(admission.NewHandler(), nil,
		func(informers.SharedInformerFactory, sets.Set[schema.GroupResource]) generic.Source { return nil },
		func(*webhookutil.ClientManager) generic.Dispatcher { return nil })
	if err != nil {
		t.Fatal(err)
	}
	webhooks.SetExternalKubeClientSet(client)
	webhooks.SetExternalKubeInformerFactory(factory)
	return &world{webhooks, namespace.Matcher{NamespaceLister: cached.Lister(), Client: client}}
}

func newNamespace(name string, ls map[string]string) *corev1.Namespace {
	return &corev1.Namespace{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: ls}}
}

type roundTripper func(*http.Request) any

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) {
	response := &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Request: r}
	answer := f(r)
	if failure, ok := answer.(metav1.Status); ok {
		response.StatusCode = int(failure.Code)
	}
	content, err := json.Marshal(answer)
	response.Body = io.NopCloser(bytes.NewReader(content))
	return response, err
}

// serveNamespace answers as an API server does.
func serveNamespace(r *http.Request) any {
	name := path.Base(r.URL.Path)
	if name == "broken" {
		return apierrors.NewForbidden(corev1.Resource("namespaces"), name, errors.New("no")).Status()
	}
	if ls, ok := live[name]; ok {
		return newNamespace(name, ls)
	}
	return apierrors.NewNotFound(corev1.Resource("namespaces"), name).Status()
}

// Labels implements match.Namespaces with the API server's cache and client.
func (w *world) Labels(ctx context.Context, name string) (labels.Set, error) {
	found, err := w.namespaces.GetNamespace(ctx, name)
	if err != nil {
		return nil, err
	}
	return found.Labels, nil
}

// upstream evaluates the API server's predicates.
func (w *world) upstream(c *match.Criteria, r *request) (map[string]answer, error) {
	hook := &admissionregistrationv1.ValidatingWebhook{Rules: c.Rules,
		NamespaceSelector: orEmpty(c.NamespaceSelector), ObjectSelector: orEmpty(c.ObjectSelector)}
	if hook.Rules == nil { // everything that the plugin handles
		hook.Rules = []admissionregistrationv1.RuleWithOperations{anyRule()}
	}
	accessor := webhook.NewValidatingWebhookAccessor("uid", "configuration", hook)
	attributes, err := r.attributes()
	if err != nil {
		return nil, err
	}
	answers := make(map[string]answer)
	answers[byRules] = answer{Matches: slices.ContainsFunc(hook.Rules, func(rule admissionregistrationv1.RuleWithOperations) bool {
		return (&rules.Matcher{Rule: rule, Attr: attributes}).Matches()
	})}
	answers[byNamespaceSelector] = answerOf(w.namespaces.MatchNamespaceSelector(accessor, attributes))
	answers[byObjectSelector] = answerOf(new(object.Matcher).MatchObjectSelector(accessor, attributes))
	invocation, failure := w.webhooks.ShouldCallHook(context.Background(), accessor, attributes, nil, nil)
	answers[byAll] = answerOf(invocation != nil, failure)
	return answers, nil
}

func answerOf(matches bool, err *apierrors.StatusError) answer {
	if err != nil {
		return answer{Status: new(err.Status())}
	}
	return answer{Matches: matches}
}

func anyRule() admissionregistrationv1.RuleWithOperations {
	return admissionregistrationv1.RuleWithOperations{
		Operations: []admissionregistrationv1.OperationType{"*"},
		Rule:       admissionregistrationv1.Rule{APIGroups: []string{"*"}, APIVersions: []string{"*"}, Resources: []string{"*/*"}},
	}
}

// orEmpty sets the defaults of a webhook configuration.
func orEmpty(s *metav1.LabelSelector) *metav1.LabelSelector {
	if s == nil {
		return new(metav1.LabelSelector)
	}
	return s
}

// ours evaluates fastadmit's predicates.
func (w *world) ours(c *match.Criteria, r *request) (map[string]answer, error) {
	body, err := r.review()
	if err != nil {
		return nil, err
	}
	review := codec.Acquire()
	defer review.Release()
	if err := review.Decode(body); err != nil {
		return nil, err
	}
	for _, e := range r.edits {
		if e.remove {
			review.Object.Remove("metadata", "labels", e.label)
			continue
		}
		review.Object.SetString(e.value, "metadata", "labels", e.label)
	}
	attributes := fastadmit.AttributesOf(review)
	answers := make(map[string]answer)
	for predicate, criteria := range map[string]*match.Criteria{
		byRules:             {Rules: c.Rules},
		byNamespaceSelector: {NamespaceSelector: c.NamespaceSelector},
		byObjectSelector:    {ObjectSelector: c.ObjectSelector},
		byAll:               c,
	} {
		m, err := match.New(criteria, nil)
		if err != nil {
			return nil, err
		}
		matches, err := m.Matches(context.Background(), review, &attributes, w)
		failure, ok := errors.AsType[*apierrors.StatusError](err)
		if err != nil && !ok {
			return nil, fmt.Errorf("an error without a status: %w", err)
		}
		answers[predicate] = answerOf(matches, failure)
	}
	return answers, review.Err()
}

// compare returns the common result of one of the predicates. It fails the test if the two differ.
func (w *world) compare(t *testing.T, c *match.Criteria, r *request) (upstream map[string]answer, different []string) {
	t.Helper()
	upstream, err := w.upstream(c, r)
	if err != nil {
		t.Fatalf("%s: %v", show(c, r), err)
	}
	ours, err := w.ours(c, r)
	if err != nil {
		t.Fatalf("%s: %v", show(c, r), err)
	}
	for _, predicate := range predicates {
		if !reflect.DeepEqual(ours[predicate], upstream[predicate]) {
			different = append(different, predicate)
			t.Errorf("%s: got %v, want %v: %s", predicate, ours[predicate], upstream[predicate], show(c, r))
		}
	}
	return upstream, different
}

func show(c *match.Criteria, r *request) string {
	body, err := r.review()
	if err != nil {
		body = []byte(err.Error())
	}
	criteria, err := json.Marshal(c)
	if err != nil {
		criteria = []byte(err.Error())
	}
	return fmt.Sprintf("%s, edits %v, criteria %s", body, r.edits, criteria)
}

func mustWrite(t *testing.T, row tally.Row) {
	t.Helper()
	if err := row.Write(); err != nil {
		t.Fatal(err)
	}
}

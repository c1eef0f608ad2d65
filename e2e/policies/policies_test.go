package policies

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/klog/v2"
	authorizationapi "k8s.io/kubernetes/pkg/apis/authorization"
	authorizationconversion "k8s.io/kubernetes/pkg/apis/authorization/v1"
	"k8s.io/kubernetes/pkg/registry/authorization/util"
	"sigs.k8s.io/yaml"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/cluster"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/handlers/validatingadmissionpolicy"
)

func TestMain(m *testing.M) {
	klog.SetLogger(klog.Logger{}) // upstream logs each duplicate annotation
	os.Exit(m.Run())
}

// readOnly is an authorizer that allows everybody to read what selectors select. Its reason repeats
// the question.
type readOnly struct{}

func (readOnly) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	fields, _ := a.GetFieldSelector()
	labels, _ := a.GetLabelSelector()
	reason := fmt.Sprint(a.GetUser().GetName(), a.GetVerb(), a.GetNamespace(), a.GetAPIGroup(), a.GetResource(), a.GetSubresource(),
		a.GetName(),
		a.GetPath(), fields, labels)
	if verb := a.GetVerb(); verb == "get" || verb == "list" && len(fields)+len(labels) > 0 {
		return authorizer.DecisionAllow, reason, nil
	}
	return authorizer.DecisionNoOpinion, reason, nil
}

// authorize answers a SubjectAccessReview as kube-apiserver does.
func authorize(ctx context.Context, review *authorizationv1.SubjectAccessReview) {
	var spec authorizationapi.SubjectAccessReviewSpec
	if err := authorizationconversion.Convert_v1_SubjectAccessReviewSpec_To_authorization_SubjectAccessReviewSpec(&review.Spec, &spec,
		nil); err != nil {
		review.Status.EvaluationError = err.Error()
		return
	}
	decision, reason, _ := readOnly{}.Authorize(ctx, util.AuthorizationAttributesFrom(spec))
	review.Status.Allowed, review.Status.Reason = decision == authorizer.DecisionAllow, reason
}

// namespaces are the namespaces of the cluster. Some have labels and annotations.
func namespaces() (all []*corev1.Namespace) {
	for i, name := range [...]string{"shop", "default", "kube-system", "kube-public", "kube-node-lease", "staging"} {
		namespace := &corev1.Namespace{
			ObjectMeta: metav1.ObjectMeta{
				Name: name, UID: types.UID(name), ResourceVersion: "2", CreationTimestamp: metav1.Unix(1700000000, 0),
				Labels: map[string]string{"kubernetes.io/metadata.name": name, "env": "prod"}, Annotations: map[string]string{"note": "x"},
			},
			Spec:   corev1.NamespaceSpec{Finalizers: []corev1.FinalizerName{"kubernetes"}},
			Status: corev1.NamespaceStatus{Phase: corev1.NamespaceActive},
		}
		if i == 1 {
			namespace.Annotations = nil
			delete(namespace.Labels, "env")
		}
		if name == "staging" {
			now := metav1.Unix(1800000000, 0)
			namespace.DeletionTimestamp, namespace.DeletionGracePeriodSeconds, namespace.Generation = &now, new(int64(30)), 7
			namespace.Labels["env"], namespace.Finalizers, namespace.GenerateName = "dev", []string{"example.com/hold"}, "stag"
			namespace.Status = corev1.NamespaceStatus{Phase: corev1.NamespaceTerminating, Conditions: []corev1.NamespaceCondition{
				{Type: "NamespaceDeletionContentFailure", Status: "True", LastTransitionTime: now, Reason: "R", Message: "m"},
			}}
		}
		all = append(all, namespace)
	}
	return all
}

// ours evaluates documents with fastadmit's plugin, which emulates a release.
func ours(t testing.TB, documents *Documents, release admission.Version) *admission.Chain {
	t.Helper()
	var manifests []admission.File
	for i := range documents.Policies {
		manifests = append(manifests, fileOf(t, "ValidatingAdmissionPolicy", documents.Policies[i].Name, documents.Policies[i]))
	}
	for i := range documents.Bindings {
		manifests = append(manifests, fileOf(t, "ValidatingAdmissionPolicyBinding", documents.Bindings[i].Name, documents.Bindings[i]))
	}
	return chainOf(t, validatingadmissionpolicy.Plugin(), release, manifests)
}

// fileOf returns a document as it would be in a file, from the API.
func fileOf(t testing.TB, kind, name string, document any) admission.File {
	t.Helper()
	content, err := json.Marshal(document)
	if err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf(`{"apiVersion":"admissionregistration.k8s.io/v1","kind":%q,%s`, kind, content[1:])
	return admission.File{Name: name, Content: []byte(text), FromAPI: true}
}

func chainOf(t testing.TB, plugin admission.Plugin, release admission.Version, manifests []admission.File) *admission.Chain {
	t.Helper()
	var objects []runtime.Object
	for _, namespace := range namespaces() {
		objects = append(objects, namespace)
	}
	state, err := cluster.New(cluster.Options{Objects: objects, Authorize: authorize})
	if err != nil {
		t.Fatal(err)
	}
	if err := state.Follow(t.Context(), plugin.Needs...); err != nil {
		t.Fatal(err)
	}
	enabled := map[string]admission.Enabled{plugin.Name: {Manifests: manifests, Version: release}}
	chain, err := admission.NewChain([]admission.Plugin{plugin}, enabled, state, nil)
	if err != nil {
		t.Fatalf("%v", err)
	}
	return chain
}

func answerOf(t testing.TB, chain *admission.Chain, body []byte) *Answer {
	t.Helper()
	review := codec.Acquire()
	defer review.Release()
	if err := review.Decode(body); err != nil {
		t.Fatal(err)
	}
	if _, err := chain.Review(t.Context(), review, admission.Validate); err != nil {
		t.Fatal(err)
	}
	var answer admissionv1.AdmissionReview
	if err := json.Unmarshal(review.AppendResponse(nil), &answer); err != nil {
		t.Fatal(err)
	}
	r := answer.Response
	a := &Answer{Warnings: r.Warnings, Annotations: map[string]string{}}
	for key, value := range r.AuditAnnotations {
		if key != "ValidatingAdmissionPolicy" && key != admission.CauseAdmissionReview {
			a.Annotations[key] = value
		}
	}
	if !r.Allowed {
		a.Denied = r.Result
		a.Denied.Message = strings.TrimPrefix(a.Denied.Message, "ValidatingAdmissionPolicy: ")
		causes := &a.Denied.Details.Causes
		*causes = slices.DeleteFunc(*causes, isOurs)
	}
	return a
}

// isOurs reports whether fastadmit adds the cause to a denial by a policy.
func isOurs(c metav1.StatusCause) bool {
	return c.Type == admission.CauseAdmissionPlugin || c.Type == admission.CauseAdmissionReview
}

// A kubernetes answers requests as Kubernetes does.
type kubernetes interface {
	// Sent returns a review as this release sends it to webhooks, nil if it does not serve the kind.
	Sent(body []byte) ([]byte, error)
	// Answer returns nil if the review ends the process.
	Answer(*admissionv1.AdmissionRequest) (*Answer, error)
}

// listsTypes is a kubernetes whose answer may be otherwise only because it sees Go types (docs/versions.md).
type listsTypes interface {
	kubernetes
	// Untyped returns its answer without them.
	Untyped(*admissionv1.AdmissionRequest) (*Answer, error)
}

// compare asks both sides about a review. A difference that Go types make is listed, if upstream lists them.
func compare(t *testing.T, documents *Documents, upstream kubernetes, chain *admission.Chain, body []byte) (denied, listed bool) {
	t.Helper()
	var review admissionv1.AdmissionReview
	if err := json.Unmarshal(body, &review); err != nil {
		t.Fatal(err)
	}
	want, err := upstream.Answer(review.Request)
	if err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	got := answerOf(t, chain, body)
	if want == nil {
		return false, false
	}
	restore(got, want)
	denied, first := want.Denied != nil, expected(want)
	if differ := difference(normal(got), first); differ != "" {
		if u, ok := upstream.(listsTypes); ok {
			if want, err = u.Untyped(review.Request); err != nil {
				t.Fatalf("%s: %v", body, err)
			}
			restore(got, want)
			listed = normal(got) == expected(want)
		}
		if !listed {
			text, _ := yaml.Marshal(documents)
			t.Errorf("%s\nof %s\non %.1500s", differ, text, body)
		}
	}
	return denied, listed
}

// restore makes whole what fastadmit truncated because all audit annotations together are longer than its limit
// (docs/limits.md), if upstream's begins with it and is as long as it says.
func restore(got, want *Answer) {
	total := 0
	for _, value := range want.Annotations {
		total += codec.JSONLen(value)
	}
	if total <= 32<<10 {
		return
	}
	for key, value := range got.Annotations {
		begin, note, cut := strings.Cut(value, "... (truncated, ")
		if whole := want.Annotations[key]; cut && note == fmt.Sprint(len(whole), " bytes)") && strings.HasPrefix(whole, begin) {
			got.Annotations[key] = strings.ToValidUTF8(whole, "\uFFFD")
		}
	}
}

// expected returns upstream's answer as fastadmit must have it.
func expected(want *Answer) string {
	if want.Denied != nil {
		want.Denied.Status = metav1.StatusFailure
	}
	for key, value := range want.Annotations { // as the audit log writes a value that is cut within a character
		want.Annotations[key] = strings.ToValidUTF8(value, "\uFFFD")
	}
	return normal(want)
}

// difference shows where two texts differ, "" if they are equal.
func difference(got, want string) string {
	if got == want {
		return ""
	}
	same := 0 // length of the common prefix
	for same < min(len(got), len(want)) && got[same] == want[same] {
		same++
	}
	same = max(same-100, 0)
	return fmt.Sprintf("got  ... %.500s\nwant ... %.500s", got[same:], want[same:])
}

// goTypes matches Go types in the error of an expression that uses a map, a list or null as a field
// name, on which a library function panics, or that a merge refuses (docs/versions.md).
var goTypes = regexp.MustCompile(`(invalid qualifier type: |interface conversion: (?:ref\.Val is )?|` +
	`expected numeric \(int or float\), got |value\.valueUnstructured\{Value:)` +
	`(map\[string\]interface \{\}|\[\]interface \{\}|\[\]string|` +
	`\*types\.base(Map|List)|\*cel\.(object|list)|types\.Null|\\+u003cnil\\+u003e)`)

// keyTypes matches the error for a key that is no string. Kubernetes 1.37 has its own for built-in kinds (docs/versions.md).
var keyTypes = regexp.MustCompile(`no such key: -?[0-9.]+|unsupported map key type: types\.\w+`)

// olderTypes has types that Kubernetes 1.33 calls otherwise in errors (docs/versions.md).
var olderTypes = strings.NewReplacer("unsupported return type: map(, )", "unsupported return type: map(dyn, dyn)",
	"unsupported return type: list()", "unsupported return type: list(dyn)",
	"type conversion error from 'int' to 'google.protobuf.Duration'", "no such overload: duration(int)")

// pointers are in the error of a merge that prints a Go value.
var pointers = regexp.MustCompile(`\(0x[0-9a-f]+\)`)

func normal(a *Answer) string {
	text, _ := json.Marshal(a)
	text = pointers.ReplaceAll(text, []byte("(0x0)"))
	short := goTypes.ReplaceAllString(string(text), "$1 GO TYPE")
	return keyTypes.ReplaceAllString(olderTypes.Replace(short), "NO SUCH KEY")
}

package podsecuritypolicy

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/admission/admissiontest"
	"github.com/fastadmit/fastadmit/cluster"
	"github.com/fastadmit/fastadmit/codec"
)

// viewOf returns a cluster with policies. Every user may use those whose names are in may.
func viewOf(t *testing.T, may []string, policies ...runtime.Object) *cluster.View {
	t.Helper()
	needs := Plugin().Needs
	state, err := cluster.New(cluster.Options{
		Objects: append([]runtime.Object{}, policies...), Kinds: cluster.KindsOf(needs...),
		Authorize: func(_ context.Context, r *authorizationv1.SubjectAccessReview) {
			r.Status.Allowed = slices.Contains(may, r.Spec.ResourceAttributes.Name)
		},
	})
	if err == nil {
		err = state.Follow(t.Context(), needs...)
	}
	if err != nil {
		t.Fatal(err)
	}
	return state.View(needs...)
}

// TestFiles has policies in files as well as in the cluster.
func TestFiles(t *testing.T) {
	const readOnly = `{"readOnlyRootFilesystem":true,` + anys + `}`
	f := func(used, want string, cluster ...runtime.Object) {
		t.Helper()
		file := func(apiVersion, name, spec string) admission.File {
			return admission.File{Name: name,
				Content: []byte(`{"apiVersion":"` + apiVersion + `","kind":"PodSecurityPolicy","metadata":{"name":"` + name +
					`"},"spec":` + spec + `}`)}
		}
		handler, err := newHandler(admission.Setup{
			Cluster:   viewOf(t, []string{"a", "b", "c"}, cluster...),
			Manifests: []admission.File{file("policies.fastadmit.io/v1beta1", "a", all), file("extensions/v1beta1", "c", readOnly)},
		})
		if err != nil {
			t.Fatal(err)
		}
		review := new(codec.Review)
		if err := review.Decode(admissiontest.Body(codec.Create, pods,
			`{"metadata":{"annotations":{"kubernetes.io/psp":"`+used+`"}},"spec":{"containers":[{}]}}`)); err != nil {
			t.Fatal(err)
		}
		if result := handler.Validate(t.Context(), review); result.Err != nil || result.Denial != nil {
			t.Fatalf("got error %v and denial %v", result.Err, result.Denial)
		}
		if got := string(review.AppendResponse(nil)); !strings.Contains(got, `"validate-policy":"`+want+`"`) {
			t.Errorf("got %s, want the policy %s", got, want)
		}
	}
	f("", "a")
	f("", "a", policy(t, "b", all, ""))
	f("b", "b", policy(t, "b", all, ""))
	f("c", "a", policy(t, "c", all, "")) // replaced by the policy of the file
}

// TestMayNot has an authorizer that denies, and one that does not allow.
func TestMayNot(t *testing.T) {
	denied := func(r *authorizationv1.SubjectAccessReview) { r.Status.Allowed, r.Status.Denied = true, true }
	body := admissiontest.Body(codec.Create, pods, `{"spec":{}}`)
	admissiontest.CheckOutcome(t, admissiontest.AccessChain(t, Plugin(), denied, policy(t, "p", all, "")), admission.Validate,
		admission.OutcomeDenied, body)
	var users []string
	authorize := func(s *authorizationv1.SubjectAccessReviewSpec) bool {
		users = append(users, s.User+" "+s.ResourceAttributes.Group)
		return false
	}
	admissiontest.CheckOutcome(t, chainOf(t, authorize, policy(t, "p", all, "")), admission.Validate, admission.OutcomeDenied, body)
	if want := []string{" policy", " extensions"}; !slices.Equal(users, want) { // a pod without a service account
		t.Errorf("asked about %q, want %q", users, want)
	}
}

// TestEnds has reviews whose context has ended.
func TestEnds(t *testing.T) {
	ended, end := context.WithCancel(t.Context())
	end()
	view := viewOf(t, []string{"p"}, policy(t, "p", `{"readOnlyRootFilesystem":true,`+anys+`}`, ""))
	p := &plugin{known: PodSecurityPolicies.In(view), access: cluster.AccessIn(view)}
	review := new(codec.Review)
	if err := review.Decode(admissiontest.Body(codec.Create, pods, `{"spec":{"containers":[{"name":"c"}]}}`)); err != nil {
		t.Fatal(err)
	}
	if result := p.validate(nil)(ended, review); !errors.Is(result.Err, context.Canceled) {
		t.Errorf("got %+v, want the error %v", result, context.Canceled)
	}
	a, err := newPermissions(t.Context(), p.access, review, "")
	if err != nil {
		t.Fatal(err)
	}
	if may, err := a.may("p"); !may || err != nil {
		t.Fatalf("got %v and error %v, want that it may be used", may, err)
	}
	a.ctx = ended
	if may, err := a.may("p"); may || !errors.Is(err, context.Canceled) { // although the answer is cached
		t.Errorf("got %v and error %v, want the error %v", may, err, context.Canceled)
	}
}

// TestMessages checks how many faults a message lists, and of which policies.
func TestMessages(t *testing.T) {
	if f := (&faultsOf{bytes: admission.MessagesBytesMax + 1}); !f.full() {
		t.Errorf("got room after %d bytes, want none", f.bytes)
	}
	f := &faultsOf{bytes: admission.MessagesBytesMax}
	path := field.NewPath("spec")
	for range 2 {
		f.add(field.Forbidden(path, "no"))
		checkGroups(f, path, &IDOptions{Rule: mayRunAs}, []int64{1, 2})
	}
	const message = "spec: Forbidden: no"
	if len(f.messages) != 1 || f.messages[0] != message || f.bytes != admission.MessagesBytesMax+len(message) {
		t.Errorf("got %q and %d bytes, want one message and its length more", f.messages, f.bytes)
	}
	a := &permissions{ctx: t.Context(), access: cluster.AccessIn(viewOf(t, []string{"a", "c", "d"})),
		users: []*authorizationv1.SubjectAccessReviewSpec{{}}}
	var policies []*PodSecurityPolicy
	faults := make(map[string]*faultsOf)
	for name, bytes := range map[string]int{"a": admission.MessagesBytesMax, "b": 1, "c": 1, "d": 1} {
		policies = append(policies, &PodSecurityPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}})
		faults[name] = &faultsOf{messages: []string{name}, bytes: bytes}
	}
	slices.SortFunc(policies, func(x, y *PodSecurityPolicy) int { return strings.Compare(x.Name, y.Name) })
	if got, err := a.messages(policies, faults); err != nil || !slices.Equal(got, []string{"a", "c"}) {
		t.Errorf("got %q and error %v, want those of a and c: b may not be used, and d is too much", got, err)
	}
}

// TestFaults has invalid policies (k8s.io/kubernetes v1.24
// pkg/security/podsecuritypolicy/factory.go).
func TestFaults(t *testing.T) {
	f := func(spec, annotations, want string) {
		t.Helper()
		if got := policy(t, "p", spec, annotations).fault; got == nil && want != "" ||
			got != nil && (want == "" || !strings.Contains(got.Error(), want)) {
			t.Errorf("%s: got %v, want %q", spec, got, want)
		}
	}
	f(all, "", "")
	f(instead("seLinux", `{"rule":"x"}`), "", `spec.seLinux.rule: got "x", want MustRunAs or RunAsAny`)
	f(with(`"runAsGroup":{"rule":"x"}`), "", `spec.runAsGroup.rule: got "x", want MustRunAs, MayRunAs or RunAsAny`)
	f(instead("supplementalGroups", `{"rule":"x"}`), "", `spec.supplementalGroups.rule: got "x", want MustRunAs, MayRunAs or RunAsAny`)
	f(instead("fsGroup", `{"rule":"MayRunAs"}`), "", `spec.fsGroup.ranges: got none, want at least one for MayRunAs`)
	f(instead("runAsUser", `{"rule":"MayRunAs"}`), "", `spec.runAsUser.rule: got "MayRunAs", want MustRunAs, MustRunAsNonRoot or RunAsAny`)
	f(instead("runAsUser", `{"rule":"MustRunAsNonRoot"}`), "", "")
	f(all, `"seccomp.security.alpha.kubernetes.io/defaultProfileName":"localhost/"`, `got "localhost/", want a seccomp profile`)
	f(with(`"privileged":"yes"`), "", "cannot unmarshal string into Go struct field")
	if err := new(PodSecurityPolicy).UnmarshalJSON([]byte(`{"metadata":[]}`)); err == nil {
		t.Error("got no error, want one of the metadata")
	}
}

// TestCachedFields checks which fields of a policy are cached.
func TestCachedFields(t *testing.T) {
	given := &PodSecurityPolicy{
		TypeMeta: metav1.TypeMeta{APIVersion: "policies.fastadmit.io/v1beta1", Kind: "PodSecurityPolicy"},
		ObjectMeta: metav1.ObjectMeta{
			Name: "p", ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "m"}},
			Annotations: map[string]string{corev1.LastAppliedConfigAnnotation: "{}", apparmorDefault: "runtime/default"},
		},
	}
	policies, err := PodSecurityPolicies.In(viewOf(t, nil, given)).List("")
	if err != nil {
		t.Fatal(err)
	}
	p := policies[0]
	if p.ManagedFields != nil || len(p.Annotations) != 1 || p.rules.apparmor.standard != "runtime/default" || p.fault == nil {
		t.Errorf("got %+v, want neither managed fields nor the annotation of kubectl, but the rules and the fault", p)
	}
	if len(given.ManagedFields) != 1 || len(given.Annotations) != 2 {
		t.Errorf("got %+v, want the object as it was", given)
	}
}

// TestWithoutTheKind has an API server that does not have policies.
func TestWithoutTheKind(t *testing.T) {
	chain := admissiontest.LiveChain(t, Plugin(), func(*http.Request) any {
		return &metav1.Status{Status: metav1.StatusFailure, Reason: metav1.StatusReasonNotFound, Code: http.StatusNotFound}
	})
	admissiontest.CheckOutcome(t, chain, admission.Validate, admission.OutcomeDenied,
		admissiontest.Body(codec.Create, pods, `{"spec":{}}`))
}

package podsecuritypolicy

import (
	"fmt"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/admission/admissiontest"
	"github.com/fastadmit/fastadmit/codec"
)

const (
	pods = "v1/pods"
	anys = `"runAsUser":{"rule":"RunAsAny"},"seLinux":{"rule":"RunAsAny"},"supplementalGroups":{"rule":"RunAsAny"},` +
		`"fsGroup":{"rule":"RunAsAny"}`
	all = `{"volumes":["*"],` + anys + `}`
)

func TestGolden(t *testing.T) { admissiontest.Run(t, Plugin()) }

// policy returns a policy with this spec and annotations.
func policy(t testing.TB, name, spec, annotations string) *PodSecurityPolicy {
	t.Helper()
	p := new(PodSecurityPolicy)
	text := fmt.Sprintf(`{"apiVersion":"policies.fastadmit.io/v1beta1","kind":"PodSecurityPolicy","metadata":{"name":%q,`+
		`"annotations":{%s}},"spec":%s}`, name, annotations, spec)
	if err := p.UnmarshalJSON([]byte(text)); err != nil {
		t.Fatal(err)
	}
	return p
}

// chainOf returns a chain in a cluster with policies. Authorize decides who may use them.
func chainOf(t testing.TB, authorize func(*authorizationv1.SubjectAccessReviewSpec) bool, policies ...runtime.Object) *admission.Chain {
	t.Helper()
	return admissiontest.AccessChain(t, Plugin(),
		func(r *authorizationv1.SubjectAccessReview) { r.Status.Allowed = authorize(&r.Spec) }, policies...)
}

func everybody(*authorizationv1.SubjectAccessReviewSpec) bool { return true }

// TestAdmits checks how policies change pods.
func TestAdmits(t *testing.T) {
	f := func(spec, annotations, given, want string) {
		t.Helper()
		chain := chainOf(t, everybody, policy(t, "p", spec, annotations))
		given = `{"metadata":{"annotations":{"kubernetes.io/psp":"p"}},"spec":` + given + `}`
		if !strings.HasPrefix(want, `{"metadata"`) {
			want = `{"metadata":{"annotations":{"kubernetes.io/psp":"p"}},"spec":` + want + `}`
		}
		admissiontest.CheckAdmit(t, chain, pods, given, want)
	}
	const one = `{"containers":[{"name":"c"}]}`
	context := func(sc string) string { return `{"containers":[{"name":"c","securityContext":` + sc + `}]}` }
	f(all, "", one, one)
	f(instead("runAsUser", `{"rule":"MustRunAs","ranges":[{"min":3,"max":4},{"min":1,"max":1}]}`), "", one, context(`{"runAsUser":3}`))
	f(instead("runAsUser", `{"rule":"MustRunAs","ranges":[{"min":3,"max":4},{"min":1,"max":1}]}`), "",
		context(`{"runAsUser":1}`), context(`{"runAsUser":1}`))
	f(instead("runAsUser", `{"rule":"MustRunAsNonRoot"}`), "", one, context(`{"runAsNonRoot":true}`))
	f(instead("runAsUser", `{"rule":"MustRunAsNonRoot"}`), "", context(`{"runAsUser":5}`), context(`{"runAsUser":5}`))
	f(with(`"runAsGroup":{"rule":"MustRunAs","ranges":[{"min":7,"max":8}]}`), "", one, context(`{"runAsGroup":7}`))
	f(instead("fsGroup", `{"rule":"MustRunAs","ranges":[{"min":7,"max":8}]}`), "", one,
		`{"containers":[{"name":"c"}],"securityContext":{"fsGroup":7}}`)
	f(instead("fsGroup", `{"rule":"MayRunAs","ranges":[{"min":7,"max":8}]}`), "", one, one)
	f(instead("supplementalGroups", `{"rule":"MustRunAs","ranges":[{"min":7,"max":8}]}`), "", one,
		`{"containers":[{"name":"c"}],"securityContext":{"supplementalGroups":[7]}}`)
	f(instead("seLinux", `{"rule":"MustRunAs","seLinuxOptions":{"level":"s0"}}`), "", one,
		`{"containers":[{"name":"c"}],"securityContext":{"seLinuxOptions":{"level":"s0"}}}`)
	f(with(`"requiredDropCapabilities":["B","A"],"defaultAddCapabilities":["C","D"]`), "",
		context(`{"capabilities":{"drop":["D"]}}`), context(`{"capabilities":{"add":["C"],"drop":["A","B","D"]}}`))
	f(with(`"defaultAddCapabilities":["C"]`), "", one, context(`{"capabilities":{"add":["C"]}}`))
	f(with(`"readOnlyRootFilesystem":true`), "", one, context(`{"readOnlyRootFilesystem":true}`))
	f(with(`"readOnlyRootFilesystem":true`), "", context(`{"privileged":false}`),
		context(`{"privileged":false,"readOnlyRootFilesystem":true}`))
	f(with(`"readOnlyRootFilesystem":true`), "", `{"initContainers":[{"name":"i"}]}`,
		`{"initContainers":[{"name":"i","securityContext":{"readOnlyRootFilesystem":true}}]}`)
	f(with(`"allowPrivilegeEscalation":false`), "", one, context(`{"allowPrivilegeEscalation":false}`))
	f(with(`"defaultAllowPrivilegeEscalation":false`), "", one, context(`{"allowPrivilegeEscalation":false}`))
	f(with(`"defaultAllowPrivilegeEscalation":false`), "", context(`{"allowPrivilegeEscalation":true}`),
		context(`{"allowPrivilegeEscalation":true}`))
	f(with(`"runtimeClass":{"allowedRuntimeClassNames":["r"],"defaultRuntimeClassName":"r"}`), "", one,
		`{"containers":[{"name":"c"}],"runtimeClassName":"r"}`)
	const seccomp = `"seccomp.security.alpha.kubernetes.io/defaultProfileName":"docker/default",` +
		`"seccomp.security.alpha.kubernetes.io/allowedProfileNames":"*"`
	f(all, seccomp, one, `{"containers":[{"name":"c"}],"securityContext":{"seccompProfile":{"type":"RuntimeDefault"}}}`)
	f(all, seccomp, `{"securityContext":{"seccompProfile":{"type":"Unconfined"}}}`,
		`{"securityContext":{"seccompProfile":{"type":"Unconfined"}}}`)
	f(all, `"apparmor.security.beta.kubernetes.io/defaultProfileName":"runtime/default"`, one,
		`{"metadata":{"annotations":{"kubernetes.io/psp":"p",
		"container.apparmor.security.beta.kubernetes.io/c":"runtime/default"}},"spec":{"containers":[{"name":"c"}]}}`)
	chain := chainOf(t, everybody, policy(t, "p", all, `"apparmor.security.beta.kubernetes.io/defaultProfileName":"runtime/default"`))
	admissiontest.CheckAdmit(t, chain, pods, `{"spec":`+one+`}`,
		`{"metadata":{"annotations":{"kubernetes.io/psp":"p",`+
			`"container.apparmor.security.beta.kubernetes.io/c":"runtime/default"}},"spec":`+one+`}`)
	const field = `{"securityContext":{"appArmorProfile":{"type":"RuntimeDefault"}},"containers":[{"name":"c"},{"name":"d",` +
		`"securityContext":{"appArmorProfile":{"type":"Localhost","localhostProfile":"a"}}}]}`
	f(all, `"apparmor.security.beta.kubernetes.io/defaultProfileName":"unconfined",`+
		`"apparmor.security.beta.kubernetes.io/allowedProfileNames":"runtime/default,localhost/a"`, field, field)
}

// TestAdmitsWhatIsGiven has pods whose fields policies must not change.
func TestAdmitsWhatIsGiven(t *testing.T) {
	f := func(spec, annotations, pod string) {
		t.Helper()
		chain := chainOf(t, everybody, policy(t, "p", spec, annotations))
		pod = `{"metadata":{"annotations":{"kubernetes.io/psp":"p",` +
			`"container.apparmor.security.beta.kubernetes.io/c":"localhost/a"}},"spec":` + pod + `}`
		admissiontest.CheckAdmit(t, chain, pods, pod, pod)
	}
	container := func(sc string) string { return `{"containers":[{"name":"c","securityContext":` + sc + `}]}` }
	inherited := func(sc string) string {
		return `{"securityContext":` + sc + `,"containers":[{"name":"c"},{"name":"d","securityContext":{}}]}`
	}
	const ranges = `{"rule":"MustRunAs","ranges":[{"min":7,"max":8}]}`
	f(instead("runAsUser", ranges), "", inherited(`{"runAsUser":8}`))
	f(instead("runAsUser", `{"rule":"MustRunAsNonRoot"}`), "", inherited(`{"runAsNonRoot":true}`))
	f(instead("runAsUser", `{"rule":"MustRunAsNonRoot"}`), "", inherited(`{"runAsUser":8}`))
	f(with(`"runAsGroup":`+ranges), "", inherited(`{"runAsGroup":8}`))
	f(with(`"runAsGroup":`+ranges), "", container(`{"runAsGroup":8}`))
	f(with(`"runAsGroup":{"rule":"MayRunAs","ranges":[{"min":7,"max":8}]}`), "", container(`{}`))
	f(instead("fsGroup", ranges), "", inherited(`{"fsGroup":8}`))
	f(instead("supplementalGroups", ranges), "", inherited(`{"supplementalGroups":[8]}`))
	f(instead("seLinux", `{"rule":"MustRunAs","seLinuxOptions":{"level":"s0:a,b"}}`), "",
		inherited(`{"seLinuxOptions":{"level":"s0:b,a"}}`))
	f(with(`"runtimeClass":{"allowedRuntimeClassNames":["r","s"],"defaultRuntimeClassName":"r"}`), "",
		`{"runtimeClassName":"s","containers":[{"name":"c"}]}`)
	f(all, `"apparmor.security.beta.kubernetes.io/defaultProfileName":"runtime/default"`, container(`{}`))
	const star = `"seccomp.security.alpha.kubernetes.io/allowedProfileNames":"*"`
	const odd = `{"seccompProfile":{"type":"RuntimeDefault","localhostProfile":"a"}}`
	f(all, star, inherited(odd))
	f(all, star, container(odd))
	f(all, star+`,"seccomp.security.alpha.kubernetes.io/defaultProfileName":"localhost/b"`,
		`{"securityContext":`+odd+`,"containers":[{"name":"c","securityContext":`+odd+`}]}`)
}

// TestPoliciesSeeThePod has a policy that changes the pod, and one that allows it unchanged.
func TestPoliciesSeeThePod(t *testing.T) {
	chain := chainOf(t, everybody, policy(t, "z", all, ""), policy(t, "a",
		strings.Replace(instead("fsGroup", `{"rule":"MustRunAs","ranges":[{"min":7,"max":8}]}`), `{`,
			`{"readOnlyRootFilesystem":true,`, 1),
		`"apparmor.security.beta.kubernetes.io/defaultProfileName":"runtime/default"`))
	const pod = `{"metadata":{"annotations":{"kubernetes.io/psp":"z"}},"spec":{"securityContext":{"runAsUser":1},` +
		`"containers":[{"name":"c","securityContext":{"privileged":false}}]}}`
	admissiontest.CheckAdmit(t, chain, pods, pod, pod)
}

// TestValidatesWhatIsComplete has fields that a policy would set.
func TestValidatesWhatIsComplete(t *testing.T) {
	f := func(spec, annotations string) {
		t.Helper()
		chain := chainOf(t, everybody, policy(t, "p", spec, annotations))
		got := string(admissiontest.Answer(t, chain, admission.Validate,
			admissiontest.Body(codec.Create, pods, `{"spec":{"containers":[{"name":"c"}]}}`)))
		if want := `unable to validate pod: []`; !strings.Contains(got, want) {
			t.Errorf("%s %s: got %s, want %s", spec, annotations, got, want)
		}
	}
	const ranges = `{"rule":"MustRunAs","ranges":[{"min":7,"max":8}]}`
	f(instead("fsGroup", ranges), "")
	f(instead("supplementalGroups", ranges), "")
	f(instead("runAsUser", ranges), "")
	f(with(`"runAsGroup":`+ranges), "")
	f(instead("seLinux", `{"rule":"MustRunAs","seLinuxOptions":{"level":"s0"}}`), "")
	f(with(`"runtimeClass":{"allowedRuntimeClassNames":["r"],"defaultRuntimeClassName":"r"}`), "")
	f(all, `"seccomp.security.alpha.kubernetes.io/defaultProfileName":"runtime/default",`+
		`"seccomp.security.alpha.kubernetes.io/allowedProfileNames":"*"`)
	f(all, `"apparmor.security.beta.kubernetes.io/defaultProfileName":"runtime/default"`)
}

// TestAnnotationsOfSeccomp has older manifests: their annotations count where the fields are
// not set, and become fields.
func TestAnnotationsOfSeccomp(t *testing.T) {
	chain := chainOf(t, everybody,
		policy(t, "p", all, `"seccomp.security.alpha.kubernetes.io/allowedProfileNames":"runtime/default,localhost/a"`))
	annotated := func(annotations, spec string) string {
		return `{"metadata":{"annotations":{"kubernetes.io/psp":"p",` + annotations + `}},"spec":` + spec + `}`
	}
	const both = `"seccomp.security.alpha.kubernetes.io/pod":"docker/default",` +
		`"container.seccomp.security.alpha.kubernetes.io/c":"localhost/a"`
	admissiontest.CheckAdmit(t, chain, pods, annotated(both, `{"containers":[{"name":"c"},{"name":"d"}]}`), annotated(both,
		`{"containers":[{"name":"c","securityContext":{"seccompProfile":{"type":"Localhost",`+
			`"localhostProfile":"a"}}},{"name":"d"}],"securityContext":{"seccompProfile":{"type":"RuntimeDefault"}}}`))
	// The fields take precedence.
	unconfined := admissiontest.Body(codec.Create, pods, annotated(both, `{"securityContext":{"seccompProfile":{"type":"Unconfined"}}}`))
	admissiontest.CheckOutcome(t, chain, admission.Mutate, admission.OutcomeDenied, unconfined)
	only := admissiontest.Body(codec.Create, pods, annotated(both, `{"containers":[{"name":"c"}]}`))
	admissiontest.CheckOutcome(t, chain, admission.Validate, admission.OutcomeDenied, only)
	other := admissiontest.Body(codec.Create, pods, annotated(`"container.seccomp.security.alpha.kubernetes.io/c":"unconfined"`,
		`{"securityContext":{"seccompProfile":{"type":"RuntimeDefault"}},"containers":[{"name":"c"}]}`))
	admissiontest.CheckOutcome(t, chain, admission.Mutate, admission.OutcomeDenied, other)
	admissiontest.CheckOutcome(t, chain, admission.Validate, admission.OutcomeAllowed, other)
	const allowed = `"seccomp.security.alpha.kubernetes.io/allowedProfileNames":"*"`
	const standard = `,"seccomp.security.alpha.kubernetes.io/defaultProfileName":"runtime/default"`
	chain = chainOf(t, everybody, policy(t, "p", all, allowed+standard))
	admissiontest.CheckAdmit(t, chain, pods, annotated(both, `{"containers":[{"name":"c","securityContext":{}}]}`), annotated(both,
		`{"containers":[{"name":"c","securityContext":{"seccompProfile":{"type":"Localhost","localhostProfile":"a"}}}],`+
			`"securityContext":{"seccompProfile":{"type":"RuntimeDefault"}}}`))
	const unconfinedPod = `"seccomp.security.alpha.kubernetes.io/pod":"unconfined"`
	admissiontest.CheckAdmit(t, chain, pods, annotated(unconfinedPod, `{}`),
		annotated(unconfinedPod, `{"securityContext":{"seccompProfile":{"type":"Unconfined"}}}`))
	chain = chainOf(t, everybody, policy(t, "p", all, allowed))
	const unknown = `"seccomp.security.alpha.kubernetes.io/pod":"x","container.seccomp.security.alpha.kubernetes.io/c":"y"`
	admissiontest.CheckAdmit(t, chain, pods, annotated(unknown, `{"containers":[{"name":"c"}]}`),
		annotated(unknown, `{"containers":[{"name":"c"}]}`))
	chain = chainOf(t, everybody, policy(t, "p", all, `"seccomp.security.alpha.kubernetes.io/allowedProfileNames":"localhost/a"`))
	got := string(admissiontest.Answer(t, chain, admission.Mutate,
		admissiontest.Body(codec.Create, pods,
			annotated(`"seccomp.security.alpha.kubernetes.io/pod":"docker/default"`, `{"containers":[{"name":"c"}]}`))))
	for _, want := range []string{"kubernetes.io/pod]: Forbidden: docker/default is not",
		"kubernetes.io/c]: Forbidden: runtime/default is not"} {
		if !strings.Contains(got, want) {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

// TestVolumes has volumes that a policy allows, and others.
func TestVolumes(t *testing.T) {
	f := func(volumes, volume, want string) {
		t.Helper()
		chain := chainOf(t, everybody, policy(t, "p", `{`+volumes+`,`+anys+`}`, ""))
		body := admissiontest.Body(codec.Create, pods,
			`{"spec":{"volumes":[{"name":"v",`+volume+`}],"containers":[{"volumeMounts":[{"name":"v","readOnly":true},{"name":"v"}]}]}}`)
		answer := string(admissiontest.Answer(t, chain, admission.Validate, body))
		if want == "" && !strings.Contains(answer, `"allowed":true`) || !strings.Contains(answer, want) {
			t.Errorf("%s: got %s, want %s", volume, answer, want)
		}
	}
	f(`"volumes":["*"]`, `"image":{"reference":"i"}`, "")
	f(`"volumes":["image","emptyDir"]`, `"image":{"reference":"i"}`,
		`spec.volumes[0]: Invalid value: \"image\": image volumes are not allowed to be used`)
	f(`"volumes":["emptyDir"]`, `"future":{}`, `unknown volumes are not allowed to be used`)
	f(`"volumes":["*"]`, `"future":{}`, "")
	f(`"volumes":["cephFS"]`, `"cephfs":{"monitors":[]}`, "")
	f(`"volumes":["secret"]`, `"projected":{"sources":[{"serviceAccountToken":{"path":"token"}}]}`, "")
	f(`"volumes":["secret"]`, `"projected":{"sources":[{"serviceAccountToken":{"path":"token","audience":"a"}}]}`,
		"projected volumes are not allowed")
	f(`"volumes":["secret"]`, `"projected":{"sources":[{"clusterTrustBundle":{"path":"token"}}]}`, "projected volumes are not allowed")
	for source, refused := range map[string]bool{
		`"downwardAPI":{"items":[{"path":"namespace","fieldRef":{"apiVersion":"v1","fieldPath":"metadata.namespace"}}]}`: false,
		`"downwardAPI":{"items":[{"path":"name","fieldRef":{"apiVersion":"v1","fieldPath":"metadata.namespace"}}]}`:      true,
		`"downwardAPI":{"items":[{"path":"namespace","fieldRef":{"apiVersion":"v1","fieldPath":"metadata.name"}}]}`:      true,
		`"downwardAPI":{"items":[{"path":"namespace","fieldRef":{"apiVersion":"v2","fieldPath":"metadata.namespace"}}]}`: true,
		`"downwardAPI":{"items":[{"path":"namespace","resourceFieldRef":{"resource":"limits.cpu"}}]}`:                    true,
		`"configMap":{"name":"kube-root-ca.crt"}`: false, `"configMap":{"name":"other"}`: true,
		`"serviceAccountToken":{"path":"other"}`: true,
	} {
		want := ""
		if refused {
			want = "projected volumes are not allowed"
		}
		f(`"volumes":["secret"]`, `"projected":{"sources":[{`+source+`}]}`, want)
	}
	f(`"volumes":["emptyDir"]`, `"projected":{"sources":[{"serviceAccountToken":{"path":"token"}}]}`, "projected volumes are not allowed")
	f(`"volumes":["secret"]`, `"emptyDir":{}`, "emptyDir volumes are not allowed")
	f(`"volumes":["*"],"allowedCSIDrivers":[{"name":"d"}],"allowedFlexVolumes":[{"driver":"d"}]`, `"emptyDir":{}`, "")
	f(`"volumes":["hostPath"]`, `"hostPath":{"path":"/b"}`, "")
	f(`"volumes":["emptyDir"],"allowedHostPaths":[{"pathPrefix":"/a"}]`, `"hostPath":{"path":"/b"}`,
		`[spec.volumes[0]: Invalid value: \"hostPath\": hostPath volumes are not allowed to be used]`)
	f(`"volumes":["hostPath"],"allowedHostPaths":[{"pathPrefix":"/a"}]`, `"hostPath":{"path":"/b"}`, "is not allowed to be used")
	f(`"volumes":["hostPath"],"allowedHostPaths":[{"pathPrefix":"/a/"}]`, `"hostPath":{"path":"/a"}`, "")
	f(`"volumes":["hostPath"],"allowedHostPaths":[{"pathPrefix":"/a"}]`, `"hostPath":{"path":"/ab"}`,
		`spec.volumes[0].hostPath.pathPrefix: Invalid value: \"/ab\": is not allowed to be used`)
	f(`"volumes":["hostPath"],"allowedHostPaths":[{"pathPrefix":"/a","readOnly":true}]`, `"hostPath":{"path":"/a/b"}`,
		`PodSecurityPolicy: unable to validate pod: [spec.containers[0].volumeMounts[1].readOnly: Invalid value: false: `+
			`must be read-only]`)
	f(`"volumes":["hostPath"],"allowedHostPaths":[{"pathPrefix":"/a","readOnly":true},{"pathPrefix":"/a/b"}]`,
		`"hostPath":{"path":"/a/b"}`, "")
}

// TestMessagesQuote has values with control characters, which messages quote.
func TestMessagesQuote(t *testing.T) {
	chain := chainOf(t, everybody, policy(t, "p", all, ""))
	body := admissiontest.Body(codec.Create, pods, `{"spec":{"containers":[{"securityContext":{"procMount":"\u0000"}}]}}`)
	const want = `spec.containers[0].securityContext.procMount: Invalid value: \"\\x00\": ProcMountType is not allowed`
	if got := string(admissiontest.Answer(t, chain, admission.Validate, body)); !strings.Contains(got, want) {
		t.Errorf("got %s, want %s", got, want)
	}
}

// TestWhoMayUse checks which users and policies the authorizer is asked about.
func TestWhoMayUse(t *testing.T) {
	var asked []string
	answer := func(s *authorizationv1.SubjectAccessReviewSpec) string {
		a := s.ResourceAttributes
		return fmt.Sprintf("%s %v %s %s.%s/%s in %s", s.User, s.Groups, a.Verb, a.Resource, a.Group, a.Name, a.Namespace)
	}
	authorize := func(s *authorizationv1.SubjectAccessReviewSpec) bool {
		asked = append(asked, answer(s))
		return false
	}
	chain := chainOf(t, authorize, policy(t, "b", all, ""), policy(t, "a", `{"volumes":["*"]}`, ""),
		policy(t, "c", `{"readOnlyRootFilesystem":true,`+anys+`}`, ""))
	body := strings.Replace(string(admissiontest.Body(codec.Create, pods, `{"spec":{"serviceAccountName":"x","containers":[{}]}}`)),
		`"namespace":"namespace"`, `"namespace":"shop","userInfo":{"username":"jane","groups":["g"]}`, 1)
	got := string(admissiontest.Answer(t, chain, admission.Mutate, []byte(body)))
	if !strings.Contains(got, "PodSecurityPolicy: unable to admit pod: []") {
		t.Errorf("got %s", got)
	}
	account, want := "system:serviceaccount:shop:x [system:serviceaccounts system:serviceaccounts:shop]", []string(nil)
	for _, name := range []string{"b", "c"} { // the policy that does not exist is not asked about
		for _, user := range []string{account, "jane [g]"} {
			for _, group := range []string{"policy", "extensions"} {
				want = append(want, fmt.Sprintf("%s use podsecuritypolicies.%s/%s in shop", user, group, name))
			}
		}
	}
	if strings.Join(asked, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(asked, "\n"), strings.Join(want, "\n"))
	}
}

// TestOrder checks which policies are tried first.
func TestOrder(t *testing.T) {
	const readOnly = `{"readOnlyRootFilesystem":true,` + anys + `}`
	f := func(phase admission.Phase, object, want string, policies ...runtime.Object) {
		t.Helper()
		got := string(admissiontest.Answer(t, chainOf(t, everybody, policies...), phase, admissiontest.Body(codec.Create, pods, object)))
		if !strings.Contains(got, want) {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	a, b, c := policy(t, "a", readOnly, ""), policy(t, "b", readOnly, ""), policy(t, "c", all, "")
	f(admission.Mutate, `{"spec":{"containers":[{}]}}`, `"admit-policy":"c"`, a, b, c)
	f(admission.Mutate, `{"spec":{"containers":[{}]}}`, `"admit-policy":"a"`, b, a)
	f(admission.Validate, `{"spec":{"containers":[{}]}}`, `unable to validate pod: []`, a, b)
	f(admission.Validate, `{"spec":{}}`, `"validate-policy":"a"`, c, b, a)
	f(admission.Validate, `{"metadata":{"annotations":{"kubernetes.io/psp":"b"}},"spec":{}}`, `"validate-policy":"b"`, c, b, a)
	f(admission.Mutate, `{}`, "no providers available to validate pod request")
	f(admission.Mutate, `null`, "unexpected type")
	f(admission.Validate, `null`, "unexpected type")
}

// TestUpdates checks which parts of an update are validated.
func TestUpdates(t *testing.T) {
	chain := chainOf(t, everybody, policy(t, "a", `{"volumes":["*"],"requiredDropCapabilities":["ALL"],`+anys+`}`, ""))
	f := func(body []byte, want admission.Outcome) {
		t.Helper()
		admissiontest.CheckOutcome(t, chain, admission.Mutate, admission.OutcomeAllowed, body)
		admissiontest.CheckOutcome(t, chain, admission.Validate, want, body)
	}
	const pod = `{"metadata":{"finalizers":["a/b"]},"spec":{"containers":[{"name":"c"}]}}`
	f(admissiontest.UpdateBody(pods, `{"spec":{"containers":[{"name":"c"}]}}`, pod), admission.OutcomeAllowed)
	f(admissiontest.UpdateBody(pods, pod, `null`), admission.OutcomeDenied)
	f(admissiontest.UpdateBody(pods, `{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c"}]}}`, pod),
		admission.OutcomeDenied)
	f(admissiontest.UpdateBody(pods, `{"spec":{"containers":[{"name":"c"}]}}`,
		`{"metadata":{"selfLink":"/a"},"spec":{"containers":[{"name":"c"}]}}`), admission.OutcomeAllowed)
	update := string(admissiontest.UpdateBody(pods, pod, pod))
	admissiontest.CheckOutcome(t, chain, admission.Validate, admission.OutcomeAllowed, []byte(update))
	admissiontest.CheckOutcome(t, chain, admission.Validate, admission.OutcomeDenied,
		[]byte(strings.Replace(update, `"UPDATE"`, `"CREATE"`, 1))) // a creation, so the old object was not checked before
	debug := func(context string) []byte {
		body := admissiontest.UpdateBody(pods, `{"spec":{"ephemeralContainers":[{"name":"d","securityContext":`+context+`}]}}`, `{}`)
		return []byte(strings.Replace(string(body), `"name":"name"`, `"name":"name","subResource":"ephemeralcontainers"`, 1))
	}
	f(debug(`{"capabilities":{"drop":["ALL"]}}`), admission.OutcomeAllowed)
	f(debug(`{"privileged":true,"capabilities":{"drop":["ALL"]}}`), admission.OutcomeDenied)
	f(debug(`null`), admission.OutcomeDenied) // because the change by the policy would be missing
	f([]byte(strings.Replace(string(debug(`null`)), "ephemeralcontainers", "resize", 1)), admission.OutcomeAllowed)
}

package podsecurity

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	admissionapi "k8s.io/pod-security-admission/admission/api"
	"k8s.io/pod-security-admission/api"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/admission/admissiontest"
	"github.com/fastadmit/fastadmit/cluster"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/corpus"
	"github.com/fastadmit/fastadmit/internal/testserver"
)

func TestGolden(t *testing.T) { admissiontest.Run(t, Plugin()) }

// namespaceWith returns a namespace with labels of the plugin, given as "enforce",
// "baseline" and so on.
func namespaceWith(name string, labels ...string) *corev1.Namespace {
	n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"kubernetes.io/metadata.name": name}}}
	for pair := range slices.Chunk(labels, 2) {
		n.Labels[api.AuditAnnotationPrefix+pair[0]] = pair[1]
	}
	return n
}

// TestOddPods has pods that no API server sends. Unreadable ones are not allowed.
func TestOddPods(t *testing.T) {
	chain := admissiontest.MustChain(t, Plugin(), "",
		namespaceWith("namespace", "enforce", "baseline", "warn", "privileged", "audit", "baseline"))
	f := func(body []byte, want string) {
		t.Helper()
		if got := string(admissiontest.Answer(t, chain, admission.Validate, body)); !strings.Contains(got, want) {
			t.Errorf("%s\ngot  %s\nwant %s", body, got, want)
		}
	}
	pod := func(object string) []byte { return admissiontest.Body(codec.Create, "v1/pods", object) }
	const allowed = `"allowed":true`
	f(pod(`{}`), allowed)
	f(pod(`{"metadata":null,"spec":null}`), allowed)
	f(pod(`{"metadata":{"annotations":[]},"spec":{"containers":null}}`), allowed)
	const undecoded = `"error":"failed to decode object: json: cannot unmarshal`
	f(pod(`{"spec":[]}`), undecoded)
	f(pod(`{"spec":{"hostNetwork":"yes"}}`), undecoded)
	f(pod(`{"spec":{"hostNetwork":"yes"}}`), `"code":400,"details":{"kind":"pods","name":"name"},"message":"failed to decode object"`)
	f(pod(`{"spec":{"HostNetwork":true}}`), allowed) // not a field of Kubernetes
	f(pod(`{"spec":{"containers":"all"}}`), undecoded)
	f(pod(`{"metadata":{"annotations":{"container.apparmor.security.beta.kubernetes.io/c":"unconfined","other":"x"}},`+
		`"spec":{"containers":[{"name":"c"}]}}`),
		`AppArmor`)
	f(admissiontest.Body(codec.Create, "apps/v1/deployments", `{"spec":{"template":{"spec":{"hostPID":1}}}}`), allowed)
	f(admissiontest.Body(codec.Create, "apps/v1/deployments", `{"spec":{"template":{"spec":{"hostPID":1}}}}`), undecoded)
	f(admissiontest.Body(codec.Create, "apps/v1/deployments", `{"spec":{"template":null}}`), allowed)
	f(admissiontest.Body(codec.Create, "v1/namespaces", `{"metadata":{"labels":{"pod-security.kubernetes.io/warn":1}}}`), `"code":422`)
	f(admissiontest.Body(codec.Create, "v1/namespaces", `{"metadata":{"labels":null}}`), allowed)
}

func TestChangesImages(t *testing.T) {
	f := func(was, now string, want bool) {
		t.Helper()
		var before, after codec.Object
		before.Reset([]byte(was))
		after.Reset([]byte(now))
		if got := changesImages(after.Root(), before.Root()); got != want {
			t.Errorf("from %s to %s: got %t, want %t", was, now, got, want)
		}
	}
	f(`{}`, `{"containers":null,"ephemeralContainers":[]}`, false)
	f(`{"containers":[{"image":"a"},{"image":"b"}]}`, `{"containers":[{"image":"a"},{"image":"b","name":"x"}]}`, false)
	f(`{"containers":[{"image":"a"},{"image":"b"}]}`, `{"containers":[{"image":"b"},{"image":"a"}]}`, true)
	f(`{"containers":[{"image":"a"}]}`, `{"containers":[{"image":"a"},{"image":"a"}]}`, true)
	f(`{"initContainers":[{"image":"a"}]}`, `{}`, true)
	f(`{"initContainers":[{"image":"a"}]}`, `{"initContainers":[{"image":"b"}]}`, true)
	f(`{"ephemeralContainers":[{"name":"x","image":"a"}]}`, `{}`, false)
	f(`{"ephemeralContainers":[{"name":"x","image":"a"},{"name":"y","image":"b"}]}`,
		`{"ephemeralContainers":[{"name":"y","image":"b"}]}`, false)
	f(`{"ephemeralContainers":[{"name":"x","image":"a"}]}`, `{"ephemeralContainers":[{"name":"y","image":"a"}]}`, true)
	f(`{"ephemeralContainers":[{"name":"x","image":"a"}]}`, `{"ephemeralContainers":[{"name":"x","image":"b"}]}`, true)
	f(`{"ephemeralContainers":[{"name":"x","image":"a"},{"name":"x","image":"b"}]}`,
		`{"ephemeralContainers":[{"name":"x","image":"a"}]}`, false)
}

// knowing returns the plugin in a cluster.
func knowing(t *testing.T, known cluster.Options) *plugin {
	t.Helper()
	state, err := cluster.New(known)
	if err != nil {
		t.Fatal(err)
	}
	needs := Plugin().Needs
	if err := state.Follow(t.Context(), needs...); err != nil {
		t.Fatal(err)
	}
	p, err := newPlugin(nil, admission.Newest())
	if err != nil {
		t.Fatal(err)
	}
	p.pods = cluster.Pods.In(state.View(needs...))
	return p
}

var baseline = api.LevelVersion{Level: api.LevelBaseline, Version: api.LatestVersion()}

func podsOf(count int, owner string) []runtime.Object {
	var pods []runtime.Object
	for i := range count {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", owner, i), Namespace: "shop"}}
		if owner != "" {
			pod.OwnerReferences = []metav1.OwnerReference{{UID: types.UID(owner), Controller: new(true)}}
		}
		pods = append(pods, pod)
	}
	return pods
}

// TestPodsMax has two pods that differ from all others: they are evaluated first, whatever
// their names.
func TestPodsMax(t *testing.T) {
	f := func(others int, want ...string) {
		t.Helper()
		objects := podsOf(others, "web")
		for _, name := range []string{"zz-1", "zz-2"} {
			objects = append(objects,
				&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "shop"}, Spec: corev1.PodSpec{HostNetwork: true}})
		}
		p := knowing(t, cluster.Options{Objects: objects})
		synctest.Test(t, func(t *testing.T) { // in which podsTimeout does not pass while the pods are checked
			if got := p.violations(t.Context(), "shop", baseline); !slices.Equal(got, want) {
				t.Errorf("%d others: got %q, want %q", others, got, want)
			}
		})
	}
	violated := []string{`existing pods in namespace "shop" violate the new PodSecurity enforce level "baseline:latest"`,
		"zz-1 (and 1 other pod): host namespaces"}
	f(podsMax-3, violated...)
	f(podsMax-2, violated...)
	f(podsMax-1, append([]string{"new PodSecurity enforce level only checked against the first 3000 of 3001 existing pods"},
		violated...)...)
	f(3*podsMax, append([]string{"new PodSecurity enforce level only checked against the first 3000 of 9002 existing pods"},
		violated...)...)
}

// TestPrioritized has pods of two controllers, of none, and with an exempt class.
func TestPrioritized(t *testing.T) {
	p := &plugin{exemptions: admissionapi.PodSecurityExemptions{RuntimeClasses: []string{"exempt"}}}
	pod := func(name, owner, class string) *corev1.Pod {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if owner != "" {
			pod.OwnerReferences = []metav1.OwnerReference{{UID: types.UID(owner), Controller: new(true)}}
		}
		if class != "" {
			pod.Spec.RuntimeClassName = &class
		}
		return pod
	}
	var got []string
	for _, pod := range p.prioritized([]*corev1.Pod{
		pod("a", "u1", ""), pod("b", "u1", ""), pod("c", "", ""), pod("d", "u2", ""), pod("e", "u3", "exempt"),
		pod("f", "", "other"), pod("g", "u2", ""),
	}) {
		got = append(got, pod.Name)
	}
	if want := "a c d f b g"; strings.Join(got, " ") != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestEnforcesMore(t *testing.T) {
	f := func(wanted, was string, want bool) {
		t.Helper()
		parse := func(text string) api.LevelVersion {
			level, version, _ := strings.Cut(text, ":")
			v, err := api.ParseVersion(version)
			if err != nil {
				t.Fatal(err)
			}
			return api.LevelVersion{Level: api.Level(level), Version: v}
		}
		if got := enforcesMore(parse(wanted), parse(was)); got != want {
			t.Errorf("%s after %s: got %v", wanted, was, got)
		}
	}
	f("baseline:latest", "baseline:latest", false)
	f("baseline:v1.20", "baseline:latest", true)
	f("baseline:v1.20", "restricted:latest", true)
	f("baseline:latest", "restricted:latest", false)
	f("restricted:latest", "baseline:latest", true)
	f("privileged:latest", "baseline:latest", false)
	f("privileged:v1.20", "privileged:latest", false)
}

// TestExemptNamespaces writes exempt namespaces: their labels have no effect, and the user
// gets a warning.
func TestExemptNamespaces(t *testing.T) {
	chain := admissiontest.MustChain(t, Plugin(), `apiVersion: pod-security.admission.config.k8s.io/v1
kind: PodSecurityConfiguration
defaults: {enforce: baseline, audit: baseline, warn: baseline}
exemptions: {namespaces: [namespace]}
`)
	f := func(labels, want string) {
		t.Helper()
		body := admissiontest.Body(codec.Create, "v1/namespaces", `{"metadata":{"name":"namespace","labels":{`+labels+`}}}`)
		got := string(admissiontest.Answer(t, chain, admission.Validate, body))
		if warned := strings.Contains(got, `"warnings":["`+want); !strings.Contains(got, `"allowed":true`) ||
			warned != (want != "") || want == "" && strings.Contains(got, "warnings") {
			t.Errorf("%s: got %s, want %s", labels, got, want)
		}
	}
	const level = `"pod-security.kubernetes.io/`
	const ignored = `namespace \"namespace\" is exempt from Pod Security, and the policy (`
	f(``, ``)
	f(level+`enforce":"privileged",`+level+`audit":"privileged",`+level+`warn":"privileged"`, ``)
	f(level+`enforce":"baseline"`, ``)
	f(level+`enforce":"privileged",`+level+`audit":"restricted"`, ignored+`audit=restricted:latest) will be ignored`)
	f(level+`enforce":"restricted"`, ignored+`enforce=restricted:latest) will be ignored`)
}

// TestTemplates has controllers without a pod template in a namespace with invalid labels:
// the template is optional only in ReplicationControllers.
func TestTemplates(t *testing.T) {
	chain := admissiontest.MustChain(t, Plugin(), "", namespaceWith("namespace", "warn", "restricted", "enforce", "bogus"))
	f := func(resource, template string, want bool) {
		t.Helper()
		got := string(admissiontest.Answer(t, chain, admission.Validate,
			admissiontest.Body(codec.Create, resource, `{"spec":{"template":`+template+`}}`)))
		if strings.Contains(got, "Failed to parse policy") != want || !strings.Contains(got, `"allowed":true`) {
			t.Errorf("%s %s: got %s, want it evaluated: %v", resource, template, got, want)
		}
	}
	f("v1/replicationcontrollers", `null`, false)
	f("v1/replicationcontrollers", `{"spec":{}}`, true)
	f("apps/v1/deployments", `null`, true)
}

// TestNoTime has neither time to check pods nor an API server to list them.
func TestNoTime(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	p := knowing(t, cluster.Options{Objects: podsOf(3, "web")})
	want := []string{"new PodSecurity enforce level only checked against the first 1 of 3 existing pods"}
	if got := p.violations(ended, "shop", baseline); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	const nobody = `{"apiVersion":"v1","kind":"Config","clusters":[{"name":"c","cluster":{"server":"http://127.0.0.1:1"}}],` +
		`"contexts":[{"name":"c","context":{"cluster":"c"}}],"current-context":"c"}`
	if err := os.WriteFile(kubeconfig, []byte(nobody), 0o600); err != nil {
		t.Fatal(err)
	}
	p = knowing(t, cluster.Options{Kubeconfig: kubeconfig})
	want = []string{"failed to list pods while checking new PodSecurity enforce level"}
	if got := p.violations(t.Context(), "shop", baseline); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := p.violations(t.Context(), "a/b", baseline); len(got) > 0 {
		t.Errorf("got %q, want nothing: no pod can be in such a namespace", got)
	}
}

func TestPodsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := func(left, want time.Duration) {
			t.Helper()
			ctx, cancel := context.WithTimeout(t.Context(), left)
			defer cancel()
			if got := podsTime(ctx); got != want {
				t.Errorf("%s left: got %s, want %s", left, got, want)
			}
		}
		f(2*podsTimeout-2, podsTimeout-1)
		f(2*podsTimeout, podsTimeout)
		f(time.Minute, podsTimeout)
		if got := podsTime(t.Context()); got != podsTimeout {
			t.Errorf("without a deadline: got %s, want %s", got, podsTimeout)
		}
	})
}

// TestPodsNotListed has an API server that does not answer: the plugin stops in time.
func TestPodsNotListed(t *testing.T) {
	server := testserver.Start(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	text := `{"apiVersion":"v1","kind":"Config","clusters":[{"name":"c","cluster":{"server":"` + server.URL + `"}}],` +
		`"contexts":[{"name":"c","context":{"cluster":"c"}}],"current-context":"c"}`
	if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	p := knowing(t, cluster.Options{Kubeconfig: kubeconfig})
	ctx := admissiontest.WithDeadline(t, podsTimeout)
	want := []string{"failed to list pods while checking new PodSecurity enforce level"}
	if got := p.violations(ctx, "shop", baseline); !slices.Equal(got, want) || ctx.Err() != nil {
		t.Errorf("got %q, %v, want %q and time left", got, ctx.Err(), want)
	}
}

func TestNoAllocations(t *testing.T) {
	create, update := corpus.MustRead("pods-create-v1-1.json"), corpus.MustRead("pods-update-v1-1.json")
	for _, labels := range [][]string{nil, {"enforce", "privileged"},
		{"enforce", "privileged", "audit", "privileged", "warn", "privileged"}} {
		chain := admissiontest.MustChain(t, Plugin(), "", namespaceWith("shop", labels...))
		admissiontest.NoAllocations(t, chain, admission.Validate, admission.OutcomeAllowed, create)
		admissiontest.NoAllocations(t, chain, admission.Validate, admission.OutcomeAllowed, update)
		admissiontest.NoAllocations(t, chain, admission.Validate, admission.OutcomeAllowed,
			corpus.MustRead("deployments-create-v1-1.json"))
	}
}

func benchmark(b *testing.B, want admission.Outcome, body []byte, labels ...string) {
	admissiontest.Benchmark(b, admissiontest.MustChain(b, Plugin(), "", namespaceWith("shop", labels...)), admission.Validate, want, body)
}

func BenchmarkPrivileged(b *testing.B) {
	benchmark(b, admission.OutcomeAllowed, corpus.MustRead("pods-create-v1-1.json"))
}

func BenchmarkBaseline(b *testing.B) {
	benchmark(b, admission.OutcomeAllowed, corpus.MustRead("pods-create-v1-1.json"), "enforce", "baseline")
}

func BenchmarkRestricted(b *testing.B) {
	benchmark(b, admission.OutcomeAllowed, restricted(b), "enforce", "restricted")
}

func BenchmarkDenied(b *testing.B) {
	benchmark(b, admission.OutcomeDenied, corpus.MustRead("pods-create-v1-1.json"), "enforce", "restricted")
}

// restricted returns the recorded Pod, changed to conform to the standard.
func restricted(t testing.TB) []byte {
	t.Helper()
	body := corpus.MustRead("pods-create-v1-1.json")
	changed := bytes.ReplaceAll(body, []byte(`"imagePullPolicy":`),
		[]byte(`"securityContext":{"allowPrivilegeEscalation":false,"capabilities":{"drop":["ALL"]},"runAsNonRoot":true,`+
			`"seccompProfile":{"type":"RuntimeDefault"}},"imagePullPolicy":`))
	if bytes.Equal(changed, body) || !json.Valid(changed) {
		t.Fatal("the recording has no containers")
	}
	return changed
}

// TestSpecOf compares specOf with decoding the whole spec and removing the unread fields.
func TestSpecOf(t *testing.T) {
	compared := 0
	for _, name := range corpus.Names() {
		review := codec.Acquire()
		defer review.Release()
		if err := review.Decode(corpus.MustRead(name)); err != nil {
			t.Fatal(err)
		}
		var pod codec.Value
		switch resource := review.Resource().Resource; resource {
		case "pods":
			pod = review.Object.Root()
		case "deployments", "cronjobs":
			pod = templateOf(resource, &review.Object)
		}
		if !pod.Get("spec", "containers").IsSet() {
			continue
		}
		compared++
		want := new(corev1.PodSpec)
		if err := json.Unmarshal([]byte(pod.Get("spec").JSON()), want); err != nil {
			t.Fatal(err)
		}
		want.Affinity, want.Tolerations, want.TopologySpreadConstraints = nil, nil, nil
		for _, list := range [][]corev1.Container{want.InitContainers, want.Containers} {
			for i := range list {
				c := &list[i]
				c.Args, c.Command, c.Env, c.EnvFrom, c.Resources, c.VolumeMounts = nil, nil, nil, nil, corev1.ResourceRequirements{}, nil
			}
		}
		got, err := specOf(pod)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %v, %v, want %v", name, got, err, want)
		}
	}
	if compared < 10 {
		t.Errorf("compared %d recordings, want more", compared)
	}
}

// TestVersions reviews a Pod whose users are not those of the host. The restricted level allows it
// to run as root since v1.35, and a server has no checks that are newer than itself
// (k8s.io/pod-security-admission/policy check_runAsNonRoot.go, registry.go).
func TestVersions(t *testing.T) {
	const body = `{"metadata":{"name":"p"},"spec":{"hostUsers":false,"securityContext":{"seccompProfile":{"type":"RuntimeDefault"}},` +
		`"containers":[{"name":"c","image":"i","securityContext":{"allowPrivilegeEscalation":false,"capabilities":{"drop":["ALL"]}}}]}}`
	f := func(emulated, enforced string, want admission.Outcome) {
		t.Helper()
		config := `{"apiVersion":"pod-security.admission.config.k8s.io/v1","kind":"PodSecurityConfiguration",` +
			`"defaults":{"enforce":"restricted","enforce-version":"` + enforced + `"}}`
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "namespace"}}
		chain := admissiontest.MustChain(t, admissiontest.Emulating(t, Plugin(), emulated), config, namespace)
		admissiontest.CheckOutcome(t, chain, admission.Validate, want, admissiontest.Body(codec.Create, "v1/pods", body))
	}
	f("1.34", "latest", admission.OutcomeDenied)
	f("1.35", "latest", admission.OutcomeAllowed)
	f("1.36", "latest", admission.OutcomeAllowed)
	f("1.34", "v1.35", admission.OutcomeDenied) // which means v1.34 there
	f("1.35", "v1.34", admission.OutcomeDenied)
	f("1.36", "v1.35", admission.OutcomeAllowed)
}

// TestProbeHostVersions reviews a Pod with a probe of another host, which the baseline level forbids
// since v1.34 (k8s.io/pod-security-admission/policy check_hostProbesAndhostLifecycle.go).
func TestProbeHostVersions(t *testing.T) {
	const body = `{"metadata":{"name":"p"},"spec":{"containers":[{"name":"c","image":"i",` +
		`"livenessProbe":{"tcpSocket":{"port":1,"host":"h"}}}]}}`
	f := func(emulated, enforced string, want admission.Outcome) {
		t.Helper()
		config := `{"apiVersion":"pod-security.admission.config.k8s.io/v1","kind":"PodSecurityConfiguration",` +
			`"defaults":{"enforce":"baseline","enforce-version":"` + enforced + `"}}`
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "namespace"}}
		chain := admissiontest.MustChain(t, admissiontest.Emulating(t, Plugin(), emulated), config, namespace)
		admissiontest.CheckOutcome(t, chain, admission.Validate, want, admissiontest.Body(codec.Create, "v1/pods", body))
	}
	f("1.33", "latest", admission.OutcomeAllowed)
	f("1.33", "v1.34", admission.OutcomeAllowed)
	f("1.34", "latest", admission.OutcomeDenied)
	f("1.34", "v1.33", admission.OutcomeAllowed)
}

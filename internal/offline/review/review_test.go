package review

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/internal/discovery"
	"github.com/fastadmit/fastadmit/internal/offline/manifest"
	"github.com/fastadmit/fastadmit/internal/offline/report"
)

// A recorder notes the reviews of its plugin.
type recorder struct {
	mu   sync.Mutex
	seen []string
}

// chain returns a chain of a plugin that denies objects named "bad", changes those named
// "plain", warns of those named "old" and fails for those named "away".
func (r *recorder) chain(t *testing.T) *admission.Chain {
	t.Helper()
	chain, err := admission.NewChain([]admission.Plugin{{
		Name: "Test", Rules: []admission.Rule{admission.Any()}, Mutates: true,
		New: func(admission.Setup) (admission.Handler, error) {
			return admission.Handler{Admit: func(_ context.Context, review *codec.Review) admission.Result {
				r.mu.Lock()
				defer r.mu.Unlock()
				r.seen = append(r.seen,
					fmt.Sprintf("%s %s %s/%s by %s dry %t object %s old %s", review.Operation(), review.Resource().Resource,
						review.Namespace(), review.Name(), review.UserInfo().Get("username").String(), review.DryRun(),
						review.Object.Get("data").JSON(), review.OldObject.Get("data").JSON()))
				switch review.Name() {
				case "bad":
					return admission.Denied(errors.New("it is bad"))
				case "away":
					return admission.Errored(errors.New("gone"))
				case "plain":
					review.Object.Set(`{"new":"x"}`, "data")
				case "old":
					review.Response.Warn("it is old")
				case "volume":
					review.Object.Set(`[{"name":"v","configMap":{"name":"m"}}]`, "spec", "volumes")
				case "long":
					for _, letter := range []string{"a", "b", "c"} {
						review.Response.Warn(strings.Repeat(letter, 2000))
					}
				}
				return admission.Allowed()
			}}, nil
		},
	}}, map[string]admission.Enabled{"Test": {}}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	return chain
}

func items(documents ...string) []manifest.Item {
	return manifest.Parse("f", []byte(strings.Join(documents, "---\n")))
}

func configMap(name, more string) string {
	return "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: " + name + "}\n" + more
}

// reviewed runs a review, and returns a line for each result and each review of the plugin.
func reviewed(t *testing.T, o Options, objects []manifest.Item) (results, seen []string) {
	t.Helper()
	r := new(recorder)
	o.Chain, o.Resources, o.Namespace = r.chain(t), discovery.NewTable(nil), "ns"
	err := Run(t.Context(), o, objects, func(root *report.Result) error {
		root.Walk(func(result *report.Result, depth int) {
			line := fmt.Sprintf("%s%s %s: %s", strings.Repeat(" ", depth), result.Location(), result.Object(), result.Said())
			for _, w := range result.Warnings {
				line += "; warning " + w.String()
			}
			results = append(results, line)
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(r.seen) // several are reviewed at the same time
	return results, r.seen
}

func TestDecisions(t *testing.T) {
	got, seen := reviewed(t, Options{User: User{Username: "jane"}, SkipUnknown: []string{SkipAllUnknown}}, items(
		configMap("good", ""), configMap("bad", ""), configMap("away", ""), configMap("plain", ""), configMap("old", ""),
		"apiVersion: v1\nkind: Node\nmetadata: {name: node1, namespace: x}\n", "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n",
		"apiVersion: v1\nkind: ConfigMap\nmetadata: {generateName: g-, namespace: other}\n", "a: [\n", "a: b\n", "apiVersion: "+
			"example.com/v1\nkind: X\nmetadata: {name: x}\n"))
	want := []string{
		"f:1 ConfigMap ns/good: allowed", "f:5 ConfigMap ns/bad: denied by Test (500): it is bad", "f:9 ConfigMap ns/away: failed: " +
			"admission plugin Test failed: gone",
		"f:13 ConfigMap ns/plain: allowed, patched by Test", "f:17 ConfigMap ns/old: allowed; warning Test: it is old",
		"f:21 Node node1: allowed", "f:25 Namespace shop: allowed", "f:29 ConfigMap other/g-*: allowed",
		"f:33 : broken: cannot be read: did not find expected node content",
		`f:35 : skipped: not a Kubernetes object: got kind "" and apiVersion "", want both`,
		`f:37 X x: skipped: unknown kind "X" of apiVersion "example.com/v1"; give its CustomResourceDefinition too, or name ` +
			`a cluster that has it with --kubeconfig`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	const by = " by jane dry false object  old "
	if len(seen) != 8 || !slices.Contains(seen, "CREATE nodes /node1"+by) || !slices.Contains(seen, "CREATE namespaces shop/shop"+by) ||
		!slices.Contains(seen, "CREATE configmaps other/"+by) {
		t.Errorf("got %q", seen)
	}
	got, _ = reviewed(t, Options{}, items("a: b\n", "apiVersion: example.com/v1\nkind: X\nmetadata: {name: x}\n"))
	if len(got) != 2 || !strings.Contains(got[0], "broken: not a Kubernetes object") || !strings.Contains(got[1],
		"X x: broken: unknown kind") {
		t.Errorf("without SkipUnknown: got %q", got)
	}
}

// TestPrograms has objects of kinds that programs read. They are skipped, and misspelt kinds are not.
func TestPrograms(t *testing.T) {
	object := func(version, kind string) string {
		return "apiVersion: " + version + "\nkind: " + kind + "\nmetadata: {name: x}\n"
	}
	review := func(request string) string {
		return "apiVersion: admission.k8s.io/v1beta1\nkind: AdmissionReview\n" +
			"request: {operation: UPDATE, object: {kind: Pod}" + request + "}\n"
	}
	got, _ := reviewed(t, Options{}, items(
		object("v1", "Config"), object("v1", "Confg"), object("v1", "Pode"), object("kind.x-k8s.io/v1alpha4", "Cluster"),
		object("cluster.x-k8s.io/v1beta1", "Cluster"), object("skaffold/v4beta6", "Config"), object("builtin", "PatchTransformer"),
		object("fastadmit.io/v1alpha1", "TestSuite"), object("fastadmit.io/v1alpha1", "TestSute"), object("kyverno.io/v1", "Policy"),
		object("chainsaw.kyverno.io/v1alpha1", "Test"), object("kubelet.config.k8s.io/v1beta1", "KubeletConfiguration"),
		review(""), review(", kind: {kind: Pod}"), review(", uid: a"),
	))
	const none = "skipped: no API server has such objects: this one is "
	want := []string{
		"f:1 Config x: " + none + "a kubeconfig, for kubectl",
		`f:5 Confg x: broken: unknown kind "Confg" of apiVersion "v1"; give`,
		`f:9 Pode x: broken: unknown kind "Pode" of apiVersion "v1", did you mean Node or Pod?`,
		"f:13 Cluster x: " + none + "for kind", "f:17 Cluster ns/x: allowed", "f:21 Config x: " + none + "for skaffold",
		"f:25 PatchTransformer x: " + none + "for kustomize", "f:29 TestSuite x: " + none + "a test, for fastadmit test",
		`f:33 TestSute x: broken: unknown kind "TestSute"`, "f:37 Policy ns/x: allowed", "f:41 Test x: " + none + "a test, for chainsaw",
		"f:45 KubeletConfiguration x: " + none + "for the kubelet",
		"f:49 AdmissionReview: " + none + "the case of a test", "f:53 : broken: cannot decode AdmissionReview: request.uid",
		"f:57 : allowed",
	}
	for i := range max(len(got), len(want)) {
		if i >= len(got) || i >= len(want) || !strings.HasPrefix(got[i], want[i]) {
			t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
			break
		}
	}
	defined := `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"tests.chainsaw.kyverno.io"},
"spec":{"group":"chainsaw.kyverno.io",
"names":{"kind":"Test","plural":"tests"},"scope":"Namespaced","versions":[{"name":"v1alpha1"}]}}` + "\n"
	got, _ = reviewed(t, Options{}, items(defined, object("chainsaw.kyverno.io/v1alpha1", "Test")))
	if len(got) != 2 || got[1] != "f:5 Test ns/x: allowed" {
		t.Errorf("got %q of a kind with a definition, want it allowed", got)
	}
}

// TestDefaultsOfChanges has a plugin that adds a volume, whose mode has a default.
func TestDefaultsOfChanges(t *testing.T) {
	const mode = `"defaultMode":420`
	for _, none := range []bool{false, true} {
		o := Options{
			Chain: new(recorder).chain(t), Resources: discovery.NewTable(nil), Namespace: "ns", KeepObjects: true, NoDefaults: none,
		}
		pod := "apiVersion: v1\nkind: Pod\nmetadata: {name: volume}\nspec: {containers: [{name: c, image: a}]}\n"
		err := Run(t.Context(), o, items(pod), func(result *report.Result) error {
			if strings.Contains(string(result.After), mode) == none || strings.Contains(string(result.Patch), mode) {
				t.Errorf("without defaults %t: got %s, patched by %s", none, result.After, result.Patch)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
}

// TestAllWarnings has more warnings than kube-apiserver takes of a webhook.
func TestAllWarnings(t *testing.T) {
	for _, keepResponse := range []bool{false, true} {
		r, warnings := new(recorder), 0
		o := Options{Chain: r.chain(t), Resources: discovery.NewTable(nil), Namespace: "ns", KeepResponse: keepResponse}
		err := Run(t.Context(), o, items(configMap("long", "")), func(result *report.Result) error {
			for _, w := range result.Warnings {
				warnings += len(w.Message)
			}
			return nil
		})
		if want := map[bool]int{false: 6000, true: 4096}[keepResponse]; err != nil || warnings != want {
			t.Errorf("got %d characters, %v, want %d", warnings, err, want)
		}
	}
}

func TestOld(t *testing.T) {
	f := func(o Options, objects []manifest.Item, wantResults, wantSeen []string) {
		t.Helper()
		results, seen := reviewed(t, o, objects)
		if !slices.Equal(results, wantResults) || !slices.Equal(seen, wantSeen) {
			t.Errorf("%+v:\ngot  %q and %q\nwant %q and %q", o.Operation, results, seen, wantResults, wantSeen)
		}
	}
	new2, old := items(configMap("a", "data: {k: new}\n"), configMap("b", "data: {k: new}\n")), items(configMap("a", "data: {k: old}\n"))
	const allowed = "ConfigMap ns/a: allowed"
	f(Options{Old: old}, new2, []string{"f:1 " + allowed, "f:6 ConfigMap ns/b: allowed"}, []string{
		`CREATE configmaps ns/b by  dry false object {"k":"new"} old `,
		`UPDATE configmaps ns/a by  dry false object {"k":"new"} old {"k":"old"}`,
	})
	f(Options{Old: old, Operation: codec.Update}, new2, []string{"f:1 " + allowed,
		"f:6 ConfigMap ns/b: broken: --old has no such object, which an UPDATE needs"},
		[]string{`UPDATE configmaps ns/a by  dry false object {"k":"new"} old {"k":"old"}`})
	f(Options{Operation: codec.Update}, new2[:1], []string{"f:1 " + allowed},
		[]string{`UPDATE configmaps ns/a by  dry false object {"k":"new"} old {"k":"new"}`})
	f(Options{Operation: codec.Delete}, new2[:1], []string{"f:1 " + allowed},
		[]string{`DELETE configmaps ns/a by  dry false object  old {"k":"new"}`})
	f(Options{Old: old, Operation: codec.Delete, DryRun: true}, new2[:1], []string{"f:1 " + allowed},
		[]string{`DELETE configmaps ns/a by  dry true object  old {"k":"old"}`})
	f(Options{Old: items("a: [\n")}, new2[:1],
		[]string{"f:1 : broken: cannot be read: did not find expected node content", "f:1 " + allowed},
		[]string{`CREATE configmaps ns/a by  dry false object {"k":"new"} old `})
	f(Options{State: items("a: [\n", "apiVersion: example.com/v1\nkind: X\n")}, new2[:1],
		[]string{"f:1 : broken: cannot be read: did not find expected node content", "f:1 " +
			allowed}, []string{`CREATE configmaps ns/a by  dry false object {"k":"new"} old `})
}

func TestChildren(t *testing.T) {
	const deployment = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec: {template: {spec: {containers: []}}}\n"
	got, seen := reviewed(t, Options{WorkloadPods: true, User: User{Username: "jane"}}, items(deployment))
	if len(got) != 3 || !strings.HasPrefix(got[0], "f:1 Deployment ns/web: allowed") ||
		!strings.HasPrefix(got[1], "  ReplicaSet ns/web-") || !strings.HasPrefix(got[2], "   Pod ns/web-") ||
		!strings.HasSuffix(got[2], "-*: allowed") {
		t.Errorf("got %q", got)
	}
	users := strings.Join(seen, "\n")
	for _, want := range []string{
		"deployments ns/web by jane", "by system:serviceaccount:kube-system:deployment-controller",
		"by system:serviceaccount:kube-system:replicaset-controller",
	} {
		if !strings.Contains(users, want) {
			t.Errorf("got no %q in\n%s", want, users)
		}
	}
	if got, _ := reviewed(t, Options{}, items(deployment)); len(got) != 1 {
		t.Errorf("got %q without WorkloadPods", got)
	}
	// A denied workload creates no pods, and a template that cannot be read is reported.
	if got, _ := reviewed(t, Options{WorkloadPods: true}, items(strings.ReplaceAll(deployment, "web", "bad"))); len(got) != 1 {
		t.Errorf("got %q of a Deployment that is denied", got)
	}
	got, _ = reviewed(t, Options{WorkloadPods: true}, items(strings.ReplaceAll(deployment, "{template: {spec: {containers: []}}}",
		"{template: 1}")))
	if len(got) != 2 || !strings.Contains(got[1], "Pod: broken: cannot make the pods of the Deployment") {
		t.Errorf("got %q of a template that is none", got)
	}
}

// TestCRD has kinds that the input defines, and invalid definitions.
func TestCRD(t *testing.T) {
	const crd = "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: c}\n" +
		"spec: {group: example.com, scope: Cluster, names: {kind: Limit, plural: limits}, versions: [{name: v1, served: true}]}\n"
	const limit = "apiVersion: example.com/v1\nkind: Limit\nmetadata: {name: l}\n"
	f := func(state, input []manifest.Item, want ...string) {
		t.Helper()
		if got, _ := reviewed(t, Options{State: state}, input); !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	f(nil, items(limit, crd), "f:1 Limit l: allowed", "f:5 CustomResourceDefinition c: allowed")
	f(items(crd), items(limit), "f:1 Limit l: allowed")
	f(nil, items(strings.Replace(crd, "example.com", "''", 1), "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\n"),
		`f:1 CustomResourceDefinition c: broken: CustomResourceDefinition: spec.group: got "", want a domain with at least one `+
			`dot`, "f:6 Pod ns/p: allowed")
	// Another kind of this name defines nothing.
	got, _ := reviewed(t, Options{}, items(limit, strings.Replace(crd, "apiextensions.k8s.io/v1", "example.com/v1", 1)))
	if len(got) != 2 || !strings.Contains(got[0], "broken: unknown kind") {
		t.Errorf("got %q", got)
	}
}

func TestRecorded(t *testing.T) {
	const recorded = `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"1","operation":"CREATE",` +
		`"name":"%s","namespace":"x",` +
		`"kind":{"group":"","version":"v1","kind":"Pod"},"resource":{"group":"","version":"v1","resource":"pods"},` +
		`"userInfo":{"username":"u"},"object":{}}}`
	f := func(name string, dryRun bool, want, wantSeen string) {
		t.Helper()
		got, seen := reviewed(t, Options{DryRun: dryRun}, items(fmt.Sprintf(recorded, name)))
		if len(got) != 1 || got[0] != want || len(seen) != 1 || seen[0] != wantSeen {
			t.Errorf("got %q and %q, want %q and %q", got, seen, want, wantSeen)
		}
	}
	f("a", false, "f:1 Pod x/a: allowed", "CREATE pods x/a by u dry false object  old ")
	f("bad", true, "f:1 Pod x/bad: denied by Test (500): it is bad", "CREATE pods x/bad by u dry true object  old ")
	for _, dry := range []bool{false, true} {
		got, _ := reviewed(t, Options{DryRun: dry}, items(`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}`))
		if len(got) != 1 || !strings.Contains(got[0], "broken: ") {
			t.Errorf("got %q of a review without a request", got)
		}
	}
}

func TestSelects(t *testing.T) {
	o := Options{Selects: func(_ context.Context, review *codec.Review) (bool, error) {
		if review.Name() == "wrong" {
			return true, errors.New("cannot know")
		}
		return review.Name() == "a", nil
	}}
	got, seen := reviewed(t, o, items(configMap("a", ""), configMap("b", ""), configMap("wrong", "")))
	want := []string{"f:1 ConfigMap ns/a: allowed", "f:5 ConfigMap ns/b: skipped: no webhook is called for it",
		"f:9 ConfigMap ns/wrong: broken: cannot know"}
	if !slices.Equal(got, want) || len(seen) != 1 {
		t.Errorf("got %q and %q, want %q", got, seen, want)
	}
}

func TestEmitStops(t *testing.T) {
	stop, calls := errors.New("stop"), 0
	o := Options{Chain: new(recorder).chain(t), Resources: discovery.NewTable(nil), KeepObjects: true, KeepResponse: true}
	err := Run(t.Context(), o, items(configMap("plain", ""), configMap("b", "")), func(r *report.Result) error {
		calls++
		if string(r.Before) == "" || !strings.Contains(string(r.After), `"data":{"new":"x"}`) || !strings.Contains(string(r.Response),
			`"allowed":true`) {
			t.Errorf("got before %s, after %s and the response %s", r.Before, r.After, r.Response)
		}
		return stop
	})
	if !errors.Is(err, stop) || calls != 1 {
		t.Errorf("got %v after %d calls, want %v after one", err, calls, stop)
	}
}

func TestLive(t *testing.T) {
	f := func(operation codec.Operation, object, wantSeen, want string) {
		t.Helper()
		r := new(recorder)
		live := NewLive(Options{Chain: r.chain(t), Operation: operation, User: User{Username: "admin"}})
		resource := discovery.Resource{GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: "pods"},
			Namespaced: true}
		got := live.Review(t.Context(), schema.GroupVersionKind{Version: "v1", Kind: "Pod"}, resource, []byte(object))
		if got.Said() != want || strings.Join(r.seen, "") != wantSeen {
			t.Errorf("%s: got %q and %q, want %q and %q", object, got.Said(), r.seen, want, wantSeen)
		}
	}
	f(codec.Create, `{"metadata":{"name":"a","namespace":"n"}}`, "CREATE pods n/a by admin dry false object  old ", "allowed")
	f(codec.Update, `{"metadata":{"name":"bad"},"data":1}`, "UPDATE pods /bad by admin dry false object 1 old 1",
		"denied by Test (500): it is bad")
	f(codec.Create, `{"metadata":{"name":"a","deletionTimestamp":"x"}}`, "", "skipped: it is being deleted")
	const owned = `{"metadata":{"name":"a","ownerReferences":[{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"r"%s}]}}`
	f(codec.Create, fmt.Sprintf(owned, `,"controller":true`), "CREATE pods /a by "+
		"system:serviceaccount:kube-system:replicaset-controller dry false object  old CREATE pods /a by admin dry false object  old ",
		"allowed")
	f(codec.Create, fmt.Sprintf(owned, ``), "CREATE pods /a by admin dry false object  old ", "allowed")
	f(codec.Update, fmt.Sprintf(owned, `,"controller":true`), "UPDATE pods /a by admin dry false object  old ", "allowed")
	f(codec.Create, `{`, "", "broken: cannot be read: invalid JSON at byte 1: got the end of the text, want ',' or a closing bracket")
}

// TestOwners checks that an object is not treated as created by a controller because of its
// ownerReferences, which any user may write.
func TestOwners(t *testing.T) {
	const controller = "system:serviceaccount:kube-system:job-controller"
	f := func(trust bool, controllers, others, want, wantUser string) {
		t.Helper()
		chain, err := admission.NewChain([]admission.Plugin{{
			Name: "Test", Rules: []admission.Rule{admission.Any()}, Validates: true,
			New: func(admission.Setup) (admission.Handler, error) {
				return admission.Handler{Validate: func(_ context.Context, review *codec.Review) admission.Result {
					does := others
					if review.UserInfo().Get("username").String() == controller {
						does = controllers
					}
					switch does {
					case "denied":
						return admission.Denied(errors.New("no"))
					case "failed":
						return admission.Errored(errors.New("no"))
					case "warned":
						review.Response.Warn("no")
					}
					return admission.Allowed()
				}}, nil
			},
		}}, map[string]admission.Enabled{"Test": {}}, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		live := NewLive(Options{Chain: chain, Operation: codec.Create, User: User{Username: "admin"}, TrustOwners: trust})
		r := live.Review(t.Context(), schema.GroupVersionKind{Version: "v1", Kind: "Pod"}, discovery.Resource{}, []byte(
			`{"metadata":{"name":"a","ownerReferences":[{"apiVersion":"batch/v1","kind":"Job","name":"j","controller":true}]}}`))
		if got := string(r.Decision) + strings.Repeat(" warned", len(r.Warnings)); got != want || r.User != wantUser {
			t.Errorf("as a controller %s, as others %s: got %s as %s, want %s as %s", controllers, others, got, r.User, want, wantUser)
		}
	}
	f(false, "", "", "allowed", controller)
	f(false, "", "denied", "denied", "admin")
	f(false, "denied", "", "denied", controller)
	f(false, "denied", "denied", "denied", controller)
	f(false, "failed", "denied", "denied", "admin")
	f(false, "warned", "failed", "failed", "admin")
	f(false, "failed", "warned", "failed", controller)
	f(false, "", "warned", "allowed warned", "admin")
	f(false, "warned", "", "allowed warned", controller)
	f(true, "", "denied", "allowed", controller)
	f(true, "denied", "", "denied", controller)
}

// TestDefaults reviews objects with the defaults of kube-apiserver, and of a CustomResourceDefinition among them.
func TestDefaults(t *testing.T) {
	large := strings.Repeat("x", 1<<20)
	objects := []string{
		"apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: gadgets.example.com}\nspec: {group: " +
			"example.com, names: {kind: Gadget, plural: gadgets}, versions: [{name: v1, schema: {openAPIV3Schema: {properties: {size: " +
			"{default: 3}, many: {items: {properties: {large: {default: " + large + "}}}}}}}}]}\n",
		"apiVersion: example.com/v1\nkind: Gadget\nmetadata: {name: a}\n",
		"apiVersion: example.com/v1\nkind: Gadget\nmetadata: {name: b}\nmany: [" + strings.Repeat("{},", 10) + "{}]\n",
		"apiVersion: storage.k8s.io/v1\nkind: StorageClass\nmetadata: {name: c, namespace: x}\nprovisioner: p\n",
		"apiVersion: apps/v1\nkind: ReplicaSet\nmetadata: {name: r}\nspec: {template: {spec: {containers: [{name: c, image: 'i:v1'}]}}}\n",
	}
	seen := func(o Options) (all []string) {
		o.Chain, o.Resources, o.Namespace, o.KeepObjects, o.WorkloadPods = new(recorder).chain(t), discovery.NewTable(nil), "ns", true, true
		err := Run(t.Context(), o, items(objects...), func(root *report.Result) error {
			root.Walk(func(result *report.Result, _ int) {
				all = append(all, result.Object()+" "+string(result.Decision)+" "+string(result.Before)+result.Message)
			})
			return nil
		})
		if err != nil || len(all) != 6 {
			t.Fatalf("got %q, %v, want 6 results", all, err)
		}
		return all
	}
	with, without := seen(Options{}), seen(Options{NoDefaults: true})
	for i, want := range []string{
		"", `"size":3`, "broken got more than 8 MiB of defaults from its CustomResourceDefinition", `"reclaimPolicy":"Delete"`,
		`"replicas":1`, `"imagePullPolicy":"IfNotPresent"`,
	} {
		if !strings.Contains(with[i], want) || want != "" && strings.Contains(without[i], want) {
			t.Errorf("got %s, and without defaults %s, want %s in the first", with[i], without[i], want)
		}
	}
	if strings.Contains(with[3]+without[3], "namespace") {
		t.Errorf("got %s, want no namespace", with[3])
	}
}

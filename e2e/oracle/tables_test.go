package oracle_test

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/kubernetes/pkg/api/legacyscheme"

	"github.com/fastadmit/fastadmit/e2e/oracle"
	"github.com/fastadmit/fastadmit/e2e/tables"
	"github.com/fastadmit/fastadmit/e2e/tally"
	"github.com/fastadmit/fastadmit/handlers"
)

// TestTables has the requests of Kubernetes' own tests of the plugins.
func TestTables(t *testing.T) {
	for _, s := range suites() {
		if s.untabled {
			continue
		}
		t.Run(s.name, func(t *testing.T) {
			cases, err := tables.Read("../testdata/" + s.name + ".yaml")
			if err != nil {
				t.Fatal(err)
			}
			in := func(c *tables.Case) (upstream, ours oracle.Implementation) {
				world := tableWorld(t, c)
				if s.authorizer != nil {
					world.Authorizer = s.authorizer(t)
				}
				return s.implementations(t, &s.variants[0], world)
			}
			sharedUpstream, sharedOurs := in(&tables.Case{})
			row := tally.Row{Plugin: s.name, Test: "tables in process", Cases: len(cases)}
			var upstream, ours oracle.Implementation
			for i, c := range cases {
				switch {
				case c.Given == nil && c.Namespace == nil && namespaceOf(&c) == home:
					upstream, ours = sharedUpstream, sharedOurs
				case i > 0 && s.removed != "" && sameWorld(&c, &cases[i-1]):
					// All cases use the same process, because a removed plugin has no state.
				default:
					upstream, ours = in(&c)
				}
				request := tableCase(t, &c)
				request.Message = s.message
				if compare(t, request, upstream, ours).Difference != "" {
					row.Different = append(row.Different, c.About)
				}
			}
			mustWrite(t, row)
		})
	}
}

func mustWrite(t *testing.T, row tally.Row) {
	t.Helper()
	if err := row.Write(); err != nil {
		t.Fatal(err)
	}
}

// home is the namespace of cases without one.
const home = "default"

// namespaceOf returns the namespace of a case.
func namespaceOf(c *tables.Case) string { return cmp.Or(c.New().GetNamespace(), home) }

// sameWorld reports whether two cases have the same world.
func sameWorld(a, b *tables.Case) bool {
	return reflect.DeepEqual(a.Given, b.Given) && reflect.DeepEqual(a.Namespace, b.Namespace) && namespaceOf(a) == namespaceOf(b)
}

// tableWorld returns the world of a case.
func tableWorld(t *testing.T, c *tables.Case) oracle.World {
	t.Helper()
	var world oracle.World
	if !c.IsMissing() {
		namespace := typed(t, c.NewNamespace(namespaceOf(c))).(*corev1.Namespace)
		if c.IsTerminating() {
			namespace.Status.Phase = corev1.NamespaceTerminating
		}
		world.Objects = []runtime.Object{namespace}
	}
	for _, object := range c.GivenObjects() {
		given := typed(t, object)
		if isNamespaced(object.GetKind()) && object.GetNamespace() == "" {
			given.(metav1.Object).SetNamespace(namespaceOf(c))
		}
		world.Objects = append(world.Objects, given)
	}
	return world
}

// isNamespaced reports whether a known kind is namespaced.
func isNamespaced(kind string) bool {
	return slices.Contains([]string{"LimitRange", "PersistentVolumeClaim", "Pod", "PodGroup", "PodPreset", "ResourceQuota",
		"ServiceAccount", "Workload"}, kind)
}

// tableCase returns the request for a client's write.
func tableCase(t *testing.T, c *tables.Case) *oracle.Case {
	t.Helper()
	object := c.New()
	gvk := object.GroupVersionKind()
	request := &oracle.Case{
		About: c.About, Operation: admission.Create, Kind: gvk,
		Resource: gvk.GroupVersion().WithResource(resourceOf(gvk)), Subresource: c.Subresource,
		Name: object.GetName(), Namespace: namespaceOf(c),
		Object: typed(t, object), Options: &metav1.CreateOptions{}, DryRun: c.DryRun,
	}
	if c.User != nil {
		request.User = user.DefaultInfo{Name: c.User.Username, Groups: c.User.Groups}
	}
	if object.GetNamespace() != "" {
		request.Namespace = object.GetNamespace()
	}
	switch gvk.Kind {
	case "Binding", "Eviction":
		request.Resource = pods
	case "TokenRequest":
		request.Resource = corev1.SchemeGroupVersion.WithResource("serviceaccounts")
	}
	if gvk.Kind == "Namespace" {
		request.Namespace = request.Name
	}
	switch old := c.Old(); {
	case old != nil:
		request.Operation, request.OldObject, request.Options = admission.Update, typed(t, old), &metav1.UpdateOptions{}
	case c.Operation == string(admission.Delete):
		request.Operation, request.Object, request.OldObject, request.Options =
			admission.Delete, nil, request.Object, &metav1.DeleteOptions{}
	case c.Operation == string(admission.Connect):
		request.Operation, request.Subresource, request.Options = admission.Connect, c.Connection(), nil
		request.Object = map[string]runtime.Object{
			"attach":      &corev1.PodAttachOptions{Stdout: true},
			"exec":        &corev1.PodExecOptions{Stdout: true, Command: []string{"true"}},
			"portforward": &corev1.PodPortForwardOptions{},
		}[request.Subresource]
		kinds, _, err := legacyscheme.Scheme.ObjectKinds(request.Object)
		if err != nil {
			t.Fatal(err)
		}
		request.Kind = kinds[0]
		request.Object.GetObjectKind().SetGroupVersionKind(request.Kind)
	}
	return request
}

func resourceOf(gvk schema.GroupVersionKind) string {
	resource := strings.ToLower(gvk.Kind) + "s"
	if strings.HasSuffix(gvk.Kind, "s") {
		resource = strings.ToLower(gvk.Kind) + "es"
	}
	return resource
}

// typed decodes the object as an API server does.
func typed(t *testing.T, u *unstructured.Unstructured) runtime.Object {
	t.Helper()
	if !legacyscheme.Scheme.Recognizes(u.GroupVersionKind()) {
		return u // current releases have no Go type for it: it is a custom resource
	}
	content, err := u.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	strict := serializer.NewCodecFactory(legacyscheme.Scheme, serializer.EnableStrict).UniversalDeserializer()
	object, gvk, err := strict.Decode(content, nil, nil)
	if err != nil {
		t.Fatalf("%v in %s", err, content)
	}
	object.GetObjectKind().SetGroupVersionKind(*gvk)
	legacyscheme.Scheme.Default(object)
	return object
}

// TestSequences has the sequences of Kubernetes' own test of EventRateLimit. A letter is an
// Event with this value in the field, in lower case a dry run; a dot is a pause of a second.
func TestSequences(t *testing.T) {
	limit := func(kind string, burst, cacheSize int) string {
		return fmt.Sprintf(`{"type":%q,"qps":1,"burst":%d,"cacheSize":%d}`, kind, burst, cacheSize)
	}
	server := limit("Server", 100, 0)
	row := tally.Row{Plugin: "EventRateLimit", Test: "sequences in process"}
	f := func(part, sequence string, limits ...string) {
		t.Helper()
		v := variant{config: `{"apiVersion":"eventratelimit.admission.k8s.io/v1alpha1","kind":"Configuration","limits":[` +
			strings.Join(limits, ",") + `]}`, options: handlers.DefaultOptions()}
		synctest.Test(t, func(t *testing.T) {
			upstream, ours := (&suite{name: "EventRateLimit"}).implementations(t, &v, oracle.World{})
			for i, letter := range sequence {
				if letter == '.' {
					time.Sleep(time.Second)
					continue
				}
				row.Cases++
				c := eventWith(part, strings.ToUpper(string(letter)))
				c.About = fmt.Sprintf("%s of %q, event %d", part, sequence, i)
				c.DryRun = letter >= 'a'
				if compare(t, c, upstream, ours).Difference != "" {
					row.Different = append(row.Different, c.About)
				}
			}
		})
	}
	for _, sequence := range []string{"A", "AAAA", "AAaaaaAAa", "AAAA.A"} {
		f("namespace", sequence, limit("Server", 3, 0))
	}
	for part, kind := range map[string]string{"namespace": "Namespace", "component": "SourceAndObject", "user": "User"} {
		for _, sequence := range []string{"AAAA", "AAAB", "AABA", "AAAA.A", "AAABA"} {
			f(part, sequence, server, limit(kind, 3, 10))
		}
		f(part, "AABBBABACAB", server, limit(kind, 3, 2))
	}
	for _, part := range slices.Sorted(maps.Keys(eventParts())) {
		f(part, "AAB", server, limit("SourceAndObject", 1, 10))
	}
	mustWrite(t, row)
}

// eventParts are the fields of an Event in a SourceAndObject key.
func eventParts() map[string]func(e *corev1.Event) *string {
	return map[string]func(e *corev1.Event) *string{
		"component":  func(e *corev1.Event) *string { return &e.Source.Component },
		"host":       func(e *corev1.Event) *string { return &e.Source.Host },
		"kind":       func(e *corev1.Event) *string { return &e.InvolvedObject.Kind },
		"object's":   func(e *corev1.Event) *string { return &e.InvolvedObject.Namespace },
		"name":       func(e *corev1.Event) *string { return &e.InvolvedObject.Name },
		"uid":        func(e *corev1.Event) *string { return (*string)(&e.InvolvedObject.UID) },
		"apiVersion": func(e *corev1.Event) *string { return &e.InvolvedObject.APIVersion },
	}
}

func eventWith(part, value string) *oracle.Case {
	event := &corev1.Event{}
	gvk := corev1.SchemeGroupVersion.WithKind("Event")
	event.SetGroupVersionKind(gvk)
	c := &oracle.Case{
		Operation: admission.Create, Kind: gvk, Resource: gvk.GroupVersion().WithResource("events"),
		Object: event, Options: &metav1.CreateOptions{}, Name: "name",
	}
	switch part {
	case "namespace":
		c.Namespace = value
	case "user":
		c.User.Name = value
	default:
		*eventParts()[part](event) = value
	}
	return c
}

// TestListed has the differences that README.md lists. If one disappears, its line there
// must be removed.
func TestListed(t *testing.T) {
	v := variant{options: handlers.DefaultOptions(), config: `{"apiVersion":"eventratelimit.admission.k8s.io/v1alpha1",` +
		`"kind":"Configuration","limits":[{"type":"SourceAndObject","qps":1,"burst":1}]}`}
	synctest.Test(t, func(t *testing.T) {
		upstream, ours := (&suite{name: "EventRateLimit"}).implementations(t, &v, oracle.World{})
		first, second := eventWith("component", "a"), eventWith("component", "ab")
		*eventParts()["host"](first.Object.(*corev1.Event)) = "bc"
		*eventParts()["host"](second.Object.(*corev1.Event)) = "c"
		compare(t, first, upstream, ours)
		comparison, err := oracle.Compare(second, upstream, ours)
		if err != nil || !strings.Contains(comparison.Difference, "limit reached on type SourceAndObject for key abc") {
			t.Errorf("got %v, %v, want Kubernetes to take two keys for one", comparison, err)
		}
	})
	mustWrite(t, tally.Row{Plugin: "EventRateLimit", Test: "listed differences", Cases: 1,
		Listed: []string{"SourceAndObject keys whose joined fields are equal share a bucket in-tree"}})
}

package policy

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/cluster"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/internal/policy/cel"
	"github.com/fastadmit/fastadmit/internal/policy/translate"
)

// readsOf returns the reads for a request that creates the ConfigMap shop/new.
func readsOf(t *testing.T, r *reads) requestReads {
	t.Helper()
	review := codec.Acquire()
	t.Cleanup(review.Release)
	if err := review.Decode([]byte(`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview",` +
		`"request":{"uid":"1","operation":"CREATE",` +
		`"name":"new","namespace":"shop","resource":{"group":"","version":"v1","resource":"configmaps"},` +
		`"requestResource":{"group":"","version":"v1","resource":"configmaps"},"object":{}}}`)); err != nil {
		t.Fatal(err)
	}
	d := new(Dispatch)
	d.Begin(t.Context(), review, nil)
	t.Cleanup(d.End)
	return requestReads{r, d}
}

// got returns the name of what Get returns.
func (r requestReads) got(resource, namespace, name string) string {
	version, resource, _ := strings.Cut(resource, " ")
	found, err := r.Get(r.d.Ctx, cel.Resource{APIVersion: version, Resource: resource}, namespace, name)
	if err != nil || found == nil {
		return fmt.Sprint(err)
	}
	return found.Read(new(codec.Object)).Get("metadata", "name").String()
}

// listed returns the names of what List returns, or how many there are.
func (r requestReads) listed(resource, namespace string, labels map[string]string) string {
	version, resource, _ := strings.Cut(resource, " ")
	kind, all, err := r.List(r.d.Ctx, cel.Resource{APIVersion: version, Resource: resource}, namespace, labels)
	if err != nil {
		return err.Error()
	}
	if len(all) > 9 {
		return fmt.Sprint(kind, " ", len(all))
	}
	names := []string{kind}
	for _, one := range all {
		names = append(names, one.Read(new(codec.Object)).Get("metadata", "name").String())
	}
	return strings.Join(names, " ")
}

// expect returns a function that compares texts.
func expect(t *testing.T) func(got, want string) {
	return func(got, want string) {
		t.Helper()
		if !strings.HasPrefix(got, want) || want == "" && got != "" {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

// TestGivenReads reads objects in files.
func TestGivenReads(t *testing.T) {
	object := func(namespace, name string, labels map[string]string) admission.ParamObject {
		text := fmt.Appendf(nil, `{"metadata":{"name":%q}}`, name)
		return admission.ParamObject{Namespace: namespace, Name: name, Labels: labels, JSON: text}
	}
	r := readsOf(t, givenReads([]admission.ParamKind{
		{APIVersion: "v1", Kind: "ConfigMap", Resource: "configmaps", Namespaced: true, Objects: []admission.ParamObject{
			object("shop", "a", map[string]string{"x": "y"}), object("shop", "new", nil), object("other", "b", nil),
		}},
		{APIVersion: "v1", Kind: "Node", Resource: "nodes", Objects: []admission.ParamObject{object("", "n", nil)}},
		{APIVersion: "v1", Kind: "Secret"}, // a parameter
	}))
	f := expect(t)
	f(r.got("v1 configmaps", "shop", "a"), "a")
	f(r.got("v1 configmaps", "shop", "b"), "<nil>")
	f(r.got("v1 configmaps", "shop", "../a"), "<nil>")
	f(r.got("v1 configmaps", "none", "a"), "<nil>")
	f(r.got("v1 configmaps", "", "a"), "<nil>")
	f(r.got("v1 configmaps", "shop", ""), "name is required")
	f(r.got("v1 configmaps", "shop", "new"), "<nil>") // it is created
	f(r.got("v1 nodes", "", "n"), "n")
	f(r.got("v1 nodes", "shop", "n"), "<nil>")
	f(r.got("v1 secrets", "shop", "a"), "<nil>")
	f(r.listed("v1 configmaps", "shop", nil), "ConfigMap a")
	f(r.listed("v1 configmaps", "", nil), "ConfigMap a b")
	f(r.listed("v1 configmaps", "", map[string]string{"x": "y"}), "ConfigMap a")
	f(r.listed("v1 configmaps", "", map[string]string{"x": "not a label"}), "ConfigMap")
	f(r.listed("v1 configmaps", "none", nil), "ConfigMap")
	f(r.listed("v1 nodes", "", nil), "Node n")
	f(r.listed("v1 nodes", "shop", nil), "the server could not find the requested resource")
	f(r.listed("v1 things", "", nil), "the server could not find the requested resource")
}

// TestClusterReads reads objects of a cluster: of a namespace with more than the cache keeps of one, of others, and of
// kinds that the API server does not have or does not list.
func TestClusterReads(t *testing.T) {
	const floods = 20_000
	configMap := func(namespace, name, data string) string {
		return fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q,"namespace":%q},"data":{"a":%q}}`,
			name, namespace, data)
	}
	all := []string{
		configMap("shop", "a", "1"), configMap("shop", "b", "2"), configMap("fixed", "c", "3"),
		configMap("huge", "h", strings.Repeat("x", 3<<20)),
	}
	for i := range floods {
		all = append(all, configMap("flood", fmt.Sprint("m", i), strings.Repeat("x", 500)))
	}
	a := &apiServer{t: t, listing: make(chan struct{}), lists: map[string]string{
		"/api/v1/namespaces": `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"shop"}}`,
		"/api/v1/configmaps": strings.Join(all, ","),
	}}
	close(a.listing)
	k := &readKinds{params: newClusterParams(cluster.DynamicIn(a.view(false)))}
	var r requestReads
	use := func(wanted ...translate.Read) (problems string) {
		used := make(wantedKinds)
		found := k.find(t.Context(), wanted, used)
		var texts []string
		for _, p := range found.check(k.params.use(t.Context(), used)) {
			texts = append(texts, p.text)
		}
		slices.Sort(texts)
		r = readsOf(t, found)
		return strings.Join(texts, "\n")
	}
	defer k.params.use(t.Context(), nil)
	configMaps, f := translate.Read{APIVersion: "v1", Resource: "configmaps"}, expect(t)
	others := []translate.Read{
		configMaps, {APIVersion: "v1", Resource: "secrets"}, {APIVersion: "later/v1", Resource: "things"},
		{APIVersion: "failing/v1", Resource: "x"},
	}
	use(others...)
	f(r.got("v1 configmaps", "shop", "a"), "a") // waits for the list
	f(r.got("v1 configmaps", "none", "a"), "<nil>")
	f(r.got("v1 configmaps", "shop", "../../secrets/a"), "<nil>")
	f(r.listed("v1 configmaps", "shop", nil), "ConfigMap a b")
	f(r.listed("v1 configmaps", "none", nil), "ConfigMap")
	const tooLarge = "cluster state: "
	f(r.listed("v1 configmaps", "flood", nil), tooLarge)
	f(r.listed("v1 configmaps", "huge", nil), tooLarge)
	f(r.listed("v1 configmaps", "", nil), tooLarge)
	f(r.got("later/v1 things", "shop", "a"), "<nil>")
	f(r.listed("later/v1 things", "", nil), "the server could not find")
	f(r.listed("v1 secrets", "", nil), "cluster state: secrets are not known yet: ")
	f(r.got("failing/v1 x", "shop", "a"), `cluster state: cannot get discovery "failing/v1"`)
	eventually(t, func() string { return fmt.Sprint(strings.Count(use(others...), "\n")) }, "3")
	problems := use(others...)
	for _, want := range []string{
		"policies read configmaps of v1: cluster state: ", "policies read secrets of v1: cluster state: ",
		"policies read x of failing/v1: ",
		"policies read things of later/v1: the API server does not have them",
	} {
		if !strings.Contains(problems, want) {
			t.Errorf("got %s, want %s", problems, want)
		}
	}
	// A policy of a namespace reads nothing else, also if its expression hides the call from Translate.
	shop := translate.Read{APIVersion: "v1", Resource: "configmaps", Namespace: "shop"}
	r.reads = r.of([]translate.Read{shop})
	f(r.got("v1 configmaps", "shop", "a"), "a")
	f(r.listed("v1 configmaps", "shop", nil), "ConfigMap a b")
	shop.Name = "b"
	one := requestReads{r.of([]translate.Read{shop}), r.d}
	f(one.got("v1 configmaps", "shop", "b"), "b")
	for _, hidden := range []string{
		r.got("v1 configmaps", "fixed", "c"), r.listed("v1 configmaps", "", nil), r.listed("v1 configmaps", "fixed", nil),
		r.got("v1 secrets", "shop", "a"), one.got("v1 configmaps", "shop", "a"), one.listed("v1 configmaps", "shop", nil),
	} {
		f(hidden, "the policy may not read it")
	}
	// Only the objects of one namespace, and those of one name, are kept.
	fixed, named := configMaps, configMaps
	fixed.Namespace, named.Name = "fixed", "b"
	const isNew = "configmaps of v1 are not known yet: the policy is new"
	eventually(t, func() string { return use(fixed, named) + r.got("v1 configmaps", "shop", "a") }, isNew)
	f(r.listed("v1 configmaps", "fixed", nil), "ConfigMap c")
	f(r.got("v1 configmaps", "shop", "b"), "b")
	f(r.listed("v1 configmaps", "", nil), "configmaps of v1 of all namespaces are not known")
}

// TestReadResourcesMax has policies that read more resources than can be watched: the API server is asked for no more.
func TestReadResourcesMax(t *testing.T) {
	a := &apiServer{t: t, listing: make(chan struct{}), lists: map[string]string{
		"/api/v1/namespaces": `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"shop"}}`,
		"/api/v1/configmaps": `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":"shop"}}`,
	}}
	close(a.listing)
	k := &readKinds{params: newClusterParams(cluster.DynamicIn(a.view(false)))}
	many := []translate.Read{{APIVersion: "v1", Resource: "configmaps"}}
	for i := range readResourcesMax {
		many = append(many, translate.Read{APIVersion: fmt.Sprintf("g%d.example.com/v1", i), Resource: "things"})
	}
	used := make(wantedKinds)
	found := k.find(t.Context(), many, used)
	problems := fmt.Sprint(found.check(k.params.use(t.Context(), used)))
	defer k.params.use(t.Context(), nil)
	if !strings.Contains(problems, "policies read more than 32 resources") {
		t.Errorf("got %s", problems)
	}
	r, f := readsOf(t, found.of(many)), expect(t)
	f(r.got("v1 configmaps", "shop", "a"), "a")
	f(r.got(many[1].APIVersion+" things", "shop", "a"), "<nil>")
	last := many[readResourcesMax].APIVersion
	f(r.got(last+" things", "shop", "a"), "things of "+last+" are not known: policies read more than 32 resources")
}

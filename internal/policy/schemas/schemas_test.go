package schemas

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	apiservercel "k8s.io/apiserver/pkg/cel"
	smdschema "sigs.k8s.io/structured-merge-diff/v6/schema"
	"sigs.k8s.io/structured-merge-diff/v6/typed"

	"github.com/fastadmit/fastadmit/cluster"
)

// fake is an API server with documents.
type fake struct {
	paths map[schema.GroupVersion]string
	texts map[string]string
	err   error
	asked []string
}

func (f *fake) SchemaPaths(context.Context) (map[schema.GroupVersion]string, error) {
	f.asked = append(f.asked, "paths")
	return maps.Clone(f.paths), f.err
}

func (f *fake) Schema(_ context.Context, path string) ([]byte, error) {
	f.asked = append(f.asked, path)
	return []byte(f.texts[path]), f.err
}

var example = schema.GroupVersion{Group: "example.com", Version: "v1"}

// document is the document of a kind Gadget, with a list that is merged by the field key.
func document(key string) string {
	return fmt.Sprintf(`{"components":{"schemas":{
		"Gadget":{"type":"object","x-kubernetes-group-version-kind":[{"group":"example.com","version":"v1","kind":"Gadget"}],
			"properties":{"parts":{"type":"array","x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":[%q],
			"items":{"allOf":[{"$ref":"#/components/schemas/Part"}]}},"self":{"$ref":"#/components/schemas/Gadget"}}},
		"Part":{"type":"object","properties":{"name":{"type":"string"},"id":{"type":"string"},"more":{"type":"object",
			"additionalProperties":{"$ref":"#/components/schemas/Part"}}}}}}}`, key)
}

// TestType tests when the API server is asked for schemas.
func TestType(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &fake{paths: map[schema.GroupVersion]string{example: "/a"},
			texts: map[string]string{"/a": document("name"), "/b": document("id")}}
		s := New(server)
		f := func(kind, want string, wantAsked ...string) {
			t.Helper()
			server.asked = nil
			got := "nothing"
			of, ok, err := s.Type(t.Context(), example.WithKind(kind))
			if err != nil {
				got = err.Error()
			} else if ok {
				got = keysOf(t, of)
			}
			if asked := fmt.Sprint(server.asked); got != want || asked != fmt.Sprint(wantAsked) {
				t.Errorf("%s after %v: got %s of %s, want %s of %v", kind, time.Now(), got, asked, want, wantAsked)
			}
		}
		f("Gadget", "[name]", "paths", "/a")
		f("Gadget", "[name]")
		f("Other", "nothing")
		server.paths[example] = "/b" // its definition was changed
		time.Sleep(pathsAge - 1)
		f("Gadget", "[name]")
		time.Sleep(time.Nanosecond)
		f("Gadget", "[id]", "paths", "/b")
		time.Sleep(pathsAge)
		f("Gadget", "[id]", "paths")
		server.err = errors.New("broken") // its last answer applies
		time.Sleep(pathsAge)
		f("Gadget", "[id]", "paths")
		server.err = nil
		delete(server.paths, example)
		server.paths[schema.GroupVersion{Version: "v1"}] = "/v1"
		time.Sleep(pathsAge)
		f("Gadget", "the API server has no schemas of example.com/v1", "paths")
		server.paths[example] = "/a"
		time.Sleep(missingAge - 1)
		f("Gadget", "the API server has no schemas of example.com/v1")
		time.Sleep(time.Nanosecond)
		f("Gadget", "[name]", "paths", "/a")
		server.paths[example], server.texts["/c"] = "/c", "{"
		time.Sleep(pathsAge)
		f("Gadget", `the schemas at "/c" cannot be read: unexpected end of JSON input`, "paths", "/c")
		server.paths = nil // an old API server
		time.Sleep(pathsAge)
		f("Gadget", ErrNone.Error(), "paths")
		server.err, s = errors.New("broken"), New(server)
		f("Gadget", "broken", "paths")
	})
}

// TestVersions tests when the API server is asked for the list of documents.
func TestVersions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &fake{paths: map[schema.GroupVersion]string{example: "/a"}}
		s := New(server)
		f := func(want string, wantAsked int) {
			t.Helper()
			server.asked = nil
			versions, err := s.Versions(t.Context())
			if got := fmt.Sprint(versions, err); got != want || len(server.asked) != wantAsked {
				t.Errorf("after %v: got %s of %s, want %s of %d requests", time.Now(), got, server.asked, want, wantAsked)
			}
		}
		f("[example.com/v1] <nil>", 1)
		time.Sleep(pathsAge - 1)
		f("[example.com/v1] <nil>", 0)
		time.Sleep(time.Nanosecond)
		f("[example.com/v1] <nil>", 1)
		if _, err := s.Path(t.Context(), example); err != nil || len(server.asked) != 1 {
			t.Errorf("got %v of %s, want the list that Versions read", err, server.asked)
		}
		time.Sleep(pathsAge)
		server.paths = nil // an old API server
		f("[] <nil>", 1)
		server.err = errors.New("broken")
		f("[] broken", 1)
	})
}

// TestParsesOnce lets several callers wait for the same document.
func TestParsesOnce(t *testing.T) {
	const callers = 8
	server := &meeting{fake: fake{paths: map[schema.GroupVersion]string{example: "/a"}, texts: map[string]string{"/a": document("name")}}}
	server.callers.Add(callers)
	s := New(server)
	if _, err := s.Path(t.Context(), example); err != nil {
		t.Fatal(err)
	}
	got := make(chan *smdschema.Schema, callers)
	for range callers {
		go func() {
			of, _, err := s.Type(t.Context(), example.WithKind("Gadget"))
			if err != nil {
				t.Error(err)
			}
			got <- of.Schema
		}()
	}
	first := <-got
	for range callers - 1 {
		if <-got != first || first == nil {
			t.Error("the document was parsed twice")
		}
	}
}

// meeting is an API server that answers a request for a document only when all callers wait.
type meeting struct {
	fake
	callers sync.WaitGroup
}

func (m *meeting) Schema(_ context.Context, path string) ([]byte, error) {
	m.callers.Done()
	m.callers.Wait()
	return []byte(m.texts[path]), nil
}

// keysOf returns the keys by which the list of a Gadget is merged.
func keysOf(t *testing.T, gadget typed.ParseableType) string {
	t.Helper()
	known, ok := gadget.Schema.Resolve(gadget.TypeRef)
	if !ok || known.Map == nil {
		t.Fatalf("got %v, want a map", known)
	}
	parts, _ := known.FindField("parts")
	list, ok := gadget.Schema.Resolve(parts.Type)
	if !ok || list.List == nil {
		t.Fatalf("got %v, want a list", list)
	}
	return fmt.Sprint(list.Keys)
}

func TestWithoutAPIServer(t *testing.T) {
	state, err := cluster.New(cluster.Options{Embedded: true})
	if err != nil {
		t.Fatal(err)
	}
	need := cluster.DiscoveredSchemas()
	if err := state.Follow(t.Context(), need); err != nil {
		t.Fatal(err)
	}
	if _, _, err := In(state.View(need)).Type(t.Context(), example.WithKind("Gadget")); !errors.Is(err, ErrNone) {
		t.Errorf("got %v, want %v", err, ErrNone)
	}
}

// TestDeclType tests the type that expressions are checked with.
func TestDeclType(t *testing.T) {
	server := &fake{paths: map[schema.GroupVersion]string{example: "/a"}, texts: map[string]string{"/a": document("name")}}
	of, err := New(server).DeclType(t.Context(), example.WithKind("Gadget"), "Gadget0")
	if err != nil {
		t.Fatal(err)
	}
	parts, self := of.Fields["parts"], of.Fields["self"]
	if of.TypeName() != "Gadget0" || parts == nil || parts.Type.ElemType == nil || parts.Type.ElemType.Fields["name"] == nil {
		t.Errorf("got %v, want Gadget0 with parts", of)
	}
	if self != nil && len(self.Type.Fields) > 0 {
		t.Errorf("got %v for an object in itself, want no fields", self.Type)
	}
	for _, kind := range []schema.GroupVersionKind{example.WithKind("Other"), {Group: "other.com", Version: "v1", Kind: "Gadget"}} {
		if got, err := New(server).DeclType(t.Context(), kind, "x"); got != nil || err != nil {
			t.Errorf("%s: got %v, %v, want nothing", kind, got, err)
		}
	}
	server.texts["/a"] = strings.ReplaceAll(document("name"), "schemas/Part", "schemas/Nope")
	if _, err := New(server).DeclType(t.Context(), example.WithKind("Gadget"), "x"); err == nil ||
		!strings.Contains(err.Error(), "there is no #/components/schemas/Nope") {
		t.Errorf("got %v, want that a schema is missing", err)
	}
	server.err = errors.New("broken")
	if _, err := New(server).DeclType(t.Context(), example.WithKind("Gadget"), "x"); !errors.Is(err, server.err) {
		t.Errorf("got %v, want %v", err, server.err)
	}
}

// TestParsersMax expects that the schemas of the last used group versions are retained, up to
// the limit.
func TestParsersMax(t *testing.T) {
	server := &fake{paths: make(map[schema.GroupVersion]string), texts: make(map[string]string)}
	version := func(i int) schema.GroupVersion { return schema.GroupVersion{Group: fmt.Sprint("g", i), Version: "v1"} }
	for i := range parsersMax + 1 {
		path := fmt.Sprint("/", i)
		server.paths[version(i)], server.texts[path] = path, strings.ReplaceAll(document("name"), "example.com", version(i).Group)
	}
	s := New(server)
	f := func(i int, want string) {
		t.Helper()
		server.asked = nil
		if _, ok, err := s.Type(t.Context(), version(i).WithKind("Gadget")); !ok || err != nil || fmt.Sprint(server.asked) != want {
			t.Errorf("%d: got %v, %v of %s, want %s", i, ok, err, server.asked, want)
		}
	}
	f(0, "[paths /0]")
	for i := 1; i < parsersMax; i++ {
		f(i, fmt.Sprintf("[/%d]", i))
	}
	f(0, "[]")
	f(parsersMax, fmt.Sprintf("[/%d]", parsersMax))
	f(0, "[]")
	f(1, "[/1]")
}

// TestNoAnswer tests an API server that does not answer a request for a document, or not in
// time.
func TestNoAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &fake{paths: map[schema.GroupVersion]string{example: "/a"}, texts: map[string]string{"/a": document("name")}}
		s := New(server)
		if _, err := s.Path(t.Context(), example); err != nil {
			t.Fatal(err)
		}
		server.err = errors.New("broken")
		if _, _, err := s.Type(t.Context(), example.WithKind("Gadget")); !errors.Is(err, server.err) {
			t.Errorf("got %v, want %v", err, server.err)
		}
		server.asked = nil
		if of, err := New(server).DeclType(t.Context(), example.WithKind("Gadget"), "x"); of != nil || !errors.Is(err, server.err) ||
			len(server.asked) != 1 {
			t.Errorf("got %v, %v after %s, want %v", of, err, server.asked, server.err)
		}
		if of, err := s.DeclType(t.Context(), example.WithKind("Gadget"), "x"); of != nil || !errors.Is(err, server.err) {
			t.Errorf("got %v, %v, want %v", of, err, server.err)
		}
		time.Sleep(pathsAge)
		ctx, cancel := context.WithCancel(t.Context())
		if path, err := s.Path(ctx, example); path != "/a" || err != nil {
			t.Errorf("got %s, %v, want what the API server said last", path, err)
		}
		cancel()
		if path, err := s.Path(ctx, example); path != "" || !errors.Is(err, server.err) {
			t.Errorf("got %s, %v after the context ended, want %v", path, err, server.err)
		}
	})
}

// TestMerging tests schemas that cannot be used for merging, and objects that do not match them.
func TestMerging(t *testing.T) {
	f := func(text, object, want string) {
		t.Helper()
		s := New(&fake{paths: map[schema.GroupVersion]string{example: "/a"}, texts: map[string]string{"/a": text}})
		of, ok, err := s.Type(t.Context(), example.WithKind("Gadget"))
		if ok && err == nil {
			_, err = of.FromUnstructured(map[string]any{object: nil})
		}
		if got := fmt.Sprint(ok, " ", err); got != want {
			t.Errorf("%s: got %s, want %s", text, got, want)
		}
	}
	f(document("name"), "parts", "true <nil>")
	f(document("name"), "unknown", "true .unknown: field not declared in schema")
	f(strings.Replace(document("name"), `"x-kubernetes-list-type":"map"`, `"x-kubernetes-list-type":"heap"`, 1), "parts",
		"false the schemas of example.com/v1 cannot be read: inlined in Gadget: unknown list type heap")
	f(strings.Replace(document("name"), `"kind":"Gadget"}]`, `"kind":"Gadget"},5]`, 1), "parts", "false <nil>")
}

// TestDeclTypes tests schemas without a type, and schemas with parts that have none.
func TestDeclTypes(t *testing.T) {
	server := &fake{paths: map[schema.GroupVersion]string{example: "/a"}, texts: make(map[string]string)}
	f := func(definition, want string) {
		t.Helper()
		server.texts["/a"] = `{"components":{"schemas":{"A":{"x-kubernetes-group-version-kind":[{"group":"example.com","version":"v1",` +
			`"kind":"A"}]` + definition + `}}}}`
		of, err := New(server).DeclType(t.Context(), example.WithKind("A"), "A0")
		got := "nothing"
		if of != nil {
			got = of.TypeName()
			for _, name := range slices.Sorted(maps.Keys(of.Fields)) {
				got += " " + name + ":" + of.Fields[name].Type.TypeName()
			}
		}
		if got != want || err != nil {
			t.Errorf("%s: got %s, %v, want %s", definition, got, err, want)
		}
	}
	const always = " apiVersion:string kind:string metadata:A0.metadata"
	f("", "nothing")
	f(`,"type":"object","properties":{"a":{"type":"string"}}`, "A0 a:string"+always)
	f(`,"type":"object","properties":{"a":{"type":"string"},"open":{"type":"object","additionalProperties":true},`+
		`"closed":{"type":"object","additionalProperties":false}}`,
		"A0 a:string apiVersion:string closed:A0.closed kind:string metadata:A0.metadata open:A0.open")
	f(`,"type":"object","properties":{"a":{"type":"string"},"m":{"type":"object","additionalProperties":{"type":"integer"}},`+
		`"l":{"type":"array","items":{"type":"boolean"}}}`,
		"A0 a:string apiVersion:string kind:string l:list m:map metadata:A0.metadata")
	of := func(reference string) (*apiservercel.DeclType, error) {
		server.texts["/a"] = `{"components":{"schemas":{"A":{"type":"object",` +
			`"x-kubernetes-group-version-kind":[{"group":"example.com","version":"v1","kind":"A"}],` +
			`"properties":{"m":{"type":"object","additionalProperties":{"$ref":"#/components/schemas/` + reference +
			`"}}}},"B":{"type":"object","properties":{"x":{"type":"string"}}}}}}`
		return New(server).DeclType(t.Context(), example.WithKind("A"), "A0")
	}
	f(`,"type":"object","properties":{"self":{"$ref":"#/components/schemas/A"}}`,
		"A0 apiVersion:string kind:string metadata:A0.metadata self:A0.self")
	f(`,"type":"object","properties":{"b":{"allOf":[{"description":"none"},{"$ref":"#/components/schemas/B"}]}}},"B":{"type":"string"`,
		"A0 apiVersion:string b:string kind:string metadata:A0.metadata")
	if got, err := of("B"); err != nil || got.Fields["m"].Type.ElemType.Fields["x"] == nil {
		t.Errorf("got %v, %v, want a map of objects with the field x", got, err)
	}
	if got, err := of("Nope"); err == nil || !strings.HasSuffix(err.Error(), "there is no #/components/schemas/Nope") {
		t.Errorf("got %v, %v, want that a schema is missing", got, err)
	}
	server.paths = nil // without OpenAPI v3
	f("", "nothing")
}

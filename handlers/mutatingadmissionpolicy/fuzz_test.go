package mutatingadmissionpolicy

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/structured-merge-diff/v6/typed"

	"github.com/fastadmit/fastadmit/cluster"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/corpus"
	"github.com/fastadmit/fastadmit/diff"
	"github.com/fastadmit/fastadmit/internal/policy/cel"
	"github.com/fastadmit/fastadmit/internal/policy/schemas"
)

// fuzz calls compare for each object as kube-apiserver would send it, with an empty patch for it.
func fuzz(f *testing.F, changes []string, compare func(t *testing.T, p *patch, object *unstructured.Unstructured, change []byte)) {
	for i, name := range corpus.Names() {
		var review struct {
			Request struct{ Object json.RawMessage }
		}
		if err := json.Unmarshal(corpus.MustRead(name), &review); err != nil {
			f.Fatal(err)
		}
		f.Add([]byte(review.Request.Object), []byte(changes[i%len(changes)]))
	}
	for _, change := range changes {
		f.Add([]byte(`{"apiVersion":"example.com/v1","kind":"Shop","metadata":{"name":"a","labels":{"a":"b"}},"spec":{"list":[1,2.5,`+
			`{"a":null}],"map":{"é~/":""}}}`), []byte(change))
	}
	needs := []cluster.Need{cluster.Discovered(), cluster.DiscoveredSchemas()}
	state, err := cluster.New(cluster.Options{Embedded: true, Kinds: cluster.KindsOf(needs...)})
	if err == nil {
		err = state.Follow(f.Context(), needs...)
	}
	if err != nil {
		f.Fatal(err)
	}
	known := schemas.In(state.View(needs...))
	f.Fuzz(func(t *testing.T, text, change []byte) {
		object := new(unstructured.Unstructured)
		if object.UnmarshalJSON(text) != nil {
			t.Skip()
		}
		before, err := object.MarshalJSON() // without duplicate members
		if err != nil {
			t.Skip()
		}
		gvk := object.GroupVersionKind()
		p := &patch{ctx: t.Context(), memory: unlimited{}, schemas: known, kind: codec.GroupVersionKind(gvk), before: before}
		compare(t, p, object, change)
	})
}

// compareWith compares what p did to an object with what upstream did.
func compareWith(t *testing.T, object []byte, p *patch, err error, want any, wantErr error) {
	t.Helper()
	if fmt.Sprint(err) != fmt.Sprint(wantErr) {
		t.Fatalf("of %s: got %v, want %v", object, err, wantErr)
	}
	if err != nil {
		return
	}
	var changed codec.Object
	changed.Reset(object)
	if p.after != nil {
		if err := diff.Change(&changed, p.before, p.after); err != nil {
			t.Fatalf("of %s: cannot change %s to %s: %v", object, p.before, p.after, err)
		}
	}
	var got any
	if err := kjson.UnmarshalCaseSensitivePreserveInts(changed.Root().AppendJSON(nil), &got); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("of %s\ngot  %v\nwant %v", object, got, want)
	}
}

// decoded reads JSON as kube-apiserver does.
func decoded(t *testing.T, text []byte) (value any) {
	t.Helper()
	if err := kjson.UnmarshalCaseSensitivePreserveInts(text, &value); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return value
}

// FuzzApplyConfiguration merges objects into others, and compares the edited objects with the results of
// structured-merge-diff. e2e/policies compares them with upstream.
func FuzzApplyConfiguration(f *testing.F) {
	changes := []string{
		`{}`, `{"metadata":{"labels":{"a":"c","d":""}}}`,
		`{"spec":{"containers":[{"name":"new"},{"name":"app","image":"i"}],"replicas":3}}`,
		`{"spec":{"selector":{"matchLabels":{"a":"b"}}}}`, `{"spec":{"list":[1],"map":{"b":{}}}}`, `{"spec":null}`, `{"nope":1}`,
		`{"spec":{"template":{"spec":{"tolerations":[{"key":"a"}],"volumes":[{"name":"v","emptyDir":{}}]}}},` +
			`"metadata":{"finalizers":["a","b"]}}`,
	}
	fuzz(f, changes, func(t *testing.T, p *patch, object *unstructured.Unstructured, change []byte) {
		var configuration map[string]any
		if kjson.UnmarshalCaseSensitivePreserveInts(change, &configuration) != nil || configuration == nil {
			t.Skip()
		}
		configuration["apiVersion"], configuration["kind"] = object.GetAPIVersion(), object.GetKind()
		kind, err := p.typeOf()
		if err != nil {
			t.Skip()
		}
		want, wantErr := merged(kind, object.DeepCopy().Object, runtime.DeepCopyJSON(configuration))
		original := p.before
		err = p.merge(configuration)
		if err != nil && strings.HasPrefix(err.Error(), "invalid ApplyConfiguration: ") {
			t.Skip()
		}
		if err != nil && wantErr != nil {
			return // if several fields are wrong, the errors may name different ones
		}
		compareWith(t, original, p, err, want, wantErr)
	})
}

// merged merges a valid configuration into an object as upstream's patch/smd.go does.
func merged(kind typed.ParseableType, object, configuration map[string]any) (any, error) {
	applied, err := kind.FromUnstructured(configuration)
	if err != nil {
		return nil, fmt.Errorf("failed to convert patch object to typed object: %w", err)
	}
	live, err := kind.FromUnstructured(object, typed.AllowDuplicates)
	if err != nil {
		return nil, fmt.Errorf("failed to convert original object to typed object: %w", err)
	}
	result, err := live.Merge(applied)
	if err != nil {
		return nil, fmt.Errorf("failed to merge patch: %w", err)
	}
	return result.AsValue().Unstructured(), nil
}

// FuzzJSONPatch compares the edited objects with the results of the library for JSON Patch.
func FuzzJSONPatch(f *testing.F) {
	changes := []string{
		`[]`, `[{"op":"add","path":"/metadata/labels","value":{"é":"b"}},{"op":"test","path":"/metadata/labels/é","value":"b"}]`,
		`[{"op":"remove","path":"/spec"}]`, `[{"op":"move","from":"/metadata/name","path":"/spec/name"},{"op":"copy","from":"/spec",` +
			`"path":"/metadata/spec"}]`,
		`[{"op":"replace","path":"/spec/list/1","value":[1,2.50,1e3,null]},{"op":"add","path":"/spec/list/-","value":{}}]`,
		`[{"op":"replace","path":"","value":{"a":1}}]`,
		`[{"op":"add","path":"/spec/containers/0","value":{"name":"a"}}]`, `[{"op":"test","path":"/kind","value":"None"}]`,
		`[{"op":"nope"}]`,
	}
	fuzz(f, changes, func(t *testing.T, p *patch, _ *unstructured.Unstructured, change []byte) {
		var given []struct {
			Op    string `json:"op"`
			From  string `json:"from"`
			Path  string `json:"path"`
			Value any    `json:"value"`
		}
		if kjson.UnmarshalCaseSensitivePreserveInts(change, &given) != nil {
			t.Skip()
		}
		p.kind = codec.GroupVersionKind{Kind: "None"} // objects of Kubernetes' own kinds would lose empty fields
		var all []ref.Val
		var operations jsonpatch.Patch
		for i := range given {
			g := &given[i]
			made := &cel.JSONPatch{Op: g.Op, From: g.From, Path: g.Path}
			operation := jsonpatch.Operation{"op": quoted(g.Op), "path": quoted(g.Path)}
			if g.From != "" {
				operation["from"] = quoted(g.From)
			}
			if g.Value != nil {
				made.Val = types.DefaultTypeAdapter.NativeToValue(g.Value)
				text, err := json.Marshal(g.Value)
				if err != nil {
					t.Skip()
				}
				operation["value"] = new(json.RawMessage(text))
			}
			all, operations = append(all, made), append(operations, operation)
		}
		want, wantErr := applied(operations, p.before)
		err := applyJSONPatch(p, types.NewRefValList(types.DefaultTypeAdapter, all))
		if wantErr != nil || want == nil {
			compareWith(t, p.before, p, err, decoded(t, p.before), wantErr)
			return
		}
		result, isObject := decoded(t, want).(map[string]any)
		if !isObject {
			t.Skip() // kube-apiserver returns an error for a result that is no object
		}
		compareWith(t, p.before, p, err, result, nil)
	})
}

// applied applies operations as upstream's patch/json_patch.go does. It returns nil if a test operation
// fails, and an error if the library panics.
func applied(operations jsonpatch.Patch, document []byte) (after []byte, err error) {
	defer func() {
		if recover() != nil {
			after, err = nil, errPanics
		}
	}()
	after, err = operations.Apply(document)
	switch {
	case errors.Is(err, jsonpatch.ErrTestFailed):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("JSON Patch: %w", err)
	}
	return after, nil
}

var errPanics = errors.New("JSON Patch: a value is missing or of a wrong kind in an operation")

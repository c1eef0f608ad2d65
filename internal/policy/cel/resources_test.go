package cel

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	celconfig "k8s.io/apiserver/pkg/apis/cel"

	"github.com/fastadmit/fastadmit/codec"
)

// objectText is the text of an object.
type objectText string

// Read implements Readable.
func (o objectText) Read(into *codec.Object) codec.Value {
	into.Reset([]byte(o))
	return into.Root()
}

// readable is a Cluster with objects by their names. Lists have many of each.
type readable struct {
	namespaced
	objects map[string]string
	many    int
	long    string // in each object of a list
}

func (r readable) Resources() Resources { return r }

func (r readable) Get(_ context.Context, _ Resource, namespace, name string) (Readable, error) {
	if name == "forbidden" {
		return nil, errors.New("the API server says no")
	}
	if text, ok := r.objects[namespace+"/"+name]; ok {
		return objectText(text), nil
	}
	return nil, nil
}

func (r readable) List(_ context.Context, of Resource, namespace string, labels map[string]string) (string, []Readable, error) {
	if of.Resource != "configmaps" {
		return "", nil, errors.New("no such resource")
	}
	var all []Readable
	for range r.many {
		all = append(all, objectText(fmt.Sprintf(`{"metadata":{"namespace":%q,"name":"a"},"data":{"labels":"%v","long":%q}}`,
			namespace, labels, r.long)))
	}
	return "ConfigMap", all, nil
}

// evaluateReading returns the value or the error of an expression that reads objects, and its cost.
func evaluateReading(t *testing.T, r readable, expression string) (got string, cost int64) {
	t.Helper()
	c := NewCompiler(true)
	c.AddVariable("list", "resource.List('v1', 'configmaps', 'shop').items", Declarations{Kyverno: true})
	got, cost, err := evaluateWith(t, c, r, expression)
	if err != nil {
		return err.Error(), cost
	}
	return got, cost
}

// evaluateWith returns the value of an expression that c compiles with Kyverno's functions, and its cost.
func evaluateWith(t *testing.T, c *Compiler, r readable, expression string) (got string, cost int64, _ error) {
	t.Helper()
	x := c.Compile(expression, Declarations{Kyverno: true}, Any)
	if x.Err != nil {
		t.Fatal(x.Err)
	}
	in := newInput(t, t.Context())
	defer in.Release()
	in.Cluster = r
	e := c.Begin(in, celconfig.RuntimeCELCostBudget)
	value, err, fatal := e.Evaluate(x)
	if err := errors.Join(err, fatal); err != nil {
		return "", in.Spent, err
	}
	return fmt.Sprint(value.Value()), in.Spent, nil
}

// TestResources reads objects with Kyverno's functions.
func TestResources(t *testing.T) {
	r := readable{many: 3, objects: map[string]string{
		"shop/a": `{"data":{"n":"7"},"list":[1,2]}`, "shop/ä/..%2f": `{"odd":true}`, "shop/mixed": `{"a":"b","c":1}`,
		"shop/labels": `{"a":"b"}`,
	}}
	f := func(expression, want string) {
		t.Helper()
		if got, _ := evaluateReading(t, r, expression); !strings.Contains(got, want) {
			t.Errorf("%s: got %s, want %s", expression, got, want)
		}
	}
	f("resource.Get('v1', 'configmaps', 'shop', 'a').data.n == '7'", "true")
	f("resource.get('v1', 'configmaps', 'shop', 'a').list == [1, 2]", "true")
	f("resource.Get('v1', 'configmaps', 'sho' + 'p', 'ä/..%2f').odd", "true")
	f("resource.Get('v1', 'configmaps', 'shop', 'other') == null", "true")
	f("resource.Get('v1', 'configmaps', 'shop', 'other').data.n == '7'", "no such")
	f("resource.Get('v1', 'configmaps', 'shop', 'forbidden') == null", "failed to get resource: the API server says no")
	f("resource.List('v1', 'configmaps', 'shop').items.size()", "3")
	f("resource.list('v1', 'configmaps', '').kind + resource.List('v1', 'configmaps', '').apiVersion", "ConfigMapListv1")
	f("variables.list.all(c, c.metadata.namespace == 'shop') && variables.list[2].metadata.name == 'a'", "true")
	f("resource.List('v1', 'configmaps', '', {'a': 'b'}).items[0].data.labels", "map[a:b]")
	f("resource.List('v1', 'configmaps', '', resource.Get('v1', 'configmaps', 'shop', 'labels')).items[0].data.labels", "map[a:b]")
	f("resource.List('v1', 'configmaps', '', resource.Get('v1', 'configmaps', 'shop', 'mixed')).items", "want texts")
	f("resource.List('v1', 'things', '').items", "failed to list resource: no such resource")
	f("type(resource) == type(resource) && resource == resource", "true")
	f("[1, 2].map(resource, resource + 1)", "2")
	if x := NewCompiler(false).Compile("resource.List('v1', 'pods', '') == null", Declarations{}, Bool); x.Err == nil {
		t.Error("an expression of Kubernetes reads objects")
	}
	if x := NewCompiler(false).Compile("resource.List('v1') == null", Declarations{Kyverno: true}, Bool); x.Err == nil {
		t.Error("a call without a namespace compiles")
	}
}

// TestExplainHidesResources requires that an explanation does not show what was read.
func TestExplainHidesResources(t *testing.T) {
	for _, text := range []string{
		"resource.Get('v1', 'configmaps', 'shop', 'a').data.n == 'x'", "variables.got.n == 'x'",
		"variables.got.all(k, variables.got[k] == 'x')",
		"resource.List('v1', 'configmaps', 'shop').items.all(i, i.data.long == 'x')",
	} {
		c := NewCompiler(true)
		c.AddVariable("got", "resource.Get('v1', 'configmaps', 'shop', 'a').data", Declarations{Kyverno: true})
		x := c.Compile(text, Declarations{Kyverno: true}, Bool)
		if x.Err != nil {
			t.Fatal(x.Err)
		}
		in := newInput(t, t.Context())
		in.Cluster = readable{many: 1, long: "hush", objects: map[string]string{"shop/a": `{"data":{"n":"hush"}}`}}
		got := fmt.Sprintf("%+v", c.Begin(in, celconfig.RuntimeCELCostBudget).Explain(x, "", Hidden{}))
		if !strings.Contains(got, "Value:false") || strings.Contains(got, "hush") {
			t.Errorf("%s: got %s", text, got)
		}
		in.Release()
	}
}

// TestResourceBounds reads as many objects as a list may have, one more, and too many bytes. Each object costs.
func TestResourceBounds(t *testing.T) {
	r := readable{many: listedMax}
	const size = "resource.List('v1', 'configmaps', '').items.size()"
	got, cost := evaluateReading(t, r, size)
	if got != fmt.Sprint(listedMax) || cost < listedMax {
		t.Errorf("got %s for %d", got, cost)
	}
	r.many++
	if got, _ = evaluateReading(t, r, size); !strings.Contains(got, "there are 10001 objects, and a list may have 10000") {
		t.Errorf("got %s", got)
	}
	r.many = 10
	if got, cost = evaluateReading(t, r, size); got != "10" || cost < 10 || cost > 30 {
		t.Errorf("got %s for %d", got, cost)
	}
	r.objects = map[string]string{"shop/long": `{"a":"` + strings.Repeat("x", codec.StringMax) + `"}`, "shop/most": `{"a":"` +
		strings.Repeat("x", codec.StringMax-8) + `"}`}
	const long = "resource.Get('v1', 'configmaps', 'shop', 'long') == null"
	if got, _ = evaluateReading(t, r, long); !strings.Contains(got, "the maximum is 4194304") {
		t.Errorf("got %.200s", got)
	}
	const most = "resource.Get('v1', 'configmaps', 'shop', 'most').a.size()"
	if got, cost = evaluateReading(t, r, most); got != fmt.Sprint(codec.StringMax-8) || cost < codec.StringMax/bytesOfCost {
		t.Errorf("got %.200s for %d", got, cost)
	}
	if got, _ = evaluateReading(t, r, strings.Repeat(most+" + ", 17)+"0"); !strings.Contains(got, "memory budget") {
		t.Errorf("got %.200s", got)
	}
	r.long = strings.Repeat("x", 4<<20-200)
	r.many = 4
	if got, _ = evaluateReading(t, r, size); got != "4" {
		t.Errorf("got %.200s", got)
	}
	r.many = 5
	if got, _ = evaluateReading(t, r, size); !strings.Contains(got, "more than 16777216 bytes") {
		t.Errorf("got %.200s", got)
	}
}

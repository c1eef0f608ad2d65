package cel

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	celconfig "k8s.io/apiserver/pkg/apis/cel"
)

// TestKyvernoFunctions has the cases of github.com/kyverno/sdk in extensions/cel/libs/hash/impl_test.go and
// extensions/cel/libs/time/lib_test.go, and results of these libraries.
func TestKyvernoFunctions(t *testing.T) {
	f := func(expression, want string) {
		t.Helper()
		if got, _ := evaluateReading(t, readable{}, expression); !strings.Contains(got, want) {
			t.Errorf("%s: got %s, want %s", expression, got, want)
		}
	}
	const image = `('ghcr.io/kyverno/kyverno:latest')`
	for _, prefix := range []string{"", "hash."} {
		f(prefix+"sha1"+image, "98f68a84cd3ada3a25bc42bf69ed8e0297e13022")
		f(prefix+"sha256"+image, "e98de8e3a54bcb921de9cc72741522823cb30ef9dda17cfd228416ead4ce3760")
		f(prefix+"md5"+image, "16dc16f633974d1015cad2ffe81e7365")
	}
	f("sha256('')", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855")
	f("md5('é')", "66ddcd97cfdeabb2f6fb8a999b4bc76f")
	f("sha256(object.spec.containers.size() == 0 ? dyn('a') : dyn(1))", "no such overload")
	f("sha256(object.spec.nope)", "no such key: nope")
	f("time.truncate(timestamp('2025-01-02T03:45:27Z'), duration('1h')) == timestamp('2025-01-02T03:00:00Z')", "true")
	f("time.truncate(timestamp('2025-01-02T03:45:27Z'), duration('0s')) == timestamp('2025-01-02T03:45:27Z')", "true")
	f("time.truncate(timestamp('2025-01-02T03:45:27Z'), duration('24h')) == timestamp('2025-01-02T00:00:00Z')", "true")
	f("time.toCron(timestamp('2025-01-02T15:30:00Z'))", "30 15 2 1 4")
	for _, text := range []string{"sha256('a') == ''", "time.now() == null", "hash.md5('a') == ''"} {
		if x := NewCompiler(false).Compile(text, Declarations{}, Bool); x.Err == nil {
			t.Errorf("%s: an expression of Kubernetes compiles", text)
		}
	}
}

// TestNow evaluates the same expressions later, also in the same review: each sees the time of its evaluation.
func TestNow(t *testing.T) {
	c := NewCompiler(true)
	d := Declarations{Kyverno: true}
	c.AddVariable("now", "time.now()", d)
	var all []*Expression
	for range 2 { // equal expressions are evaluated once if they can share their results
		all = append(all, c.Compile("string(time.now())", d, String), c.Compile("string(variables.now)", d, String))
	}
	for _, x := range all {
		if x.Err != nil || x.shared != nil {
			t.Fatalf("%s: got %v, and it is shared: %v", x.Text, x.Err, x.shared != nil)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		in := newInput(t, t.Context())
		defer in.Release()
		for _, x := range all {
			time.Sleep(time.Hour)
			e := c.Begin(in, celconfig.RuntimeCELCostBudget)
			got, err, fatal := e.Evaluate(x)
			if want := time.Now().UTC().Format(time.RFC3339); err != nil || fatal != nil || fmt.Sprint(got.Value()) != want {
				t.Errorf("%s: got %v, %v, %v, want %s", x.Text, got, err, fatal, want)
			}
			e.End()
		}
	})
}

// TestHashBounds hashes long texts: they cost what reading them does, and the longest that an expression can make ends it.
func TestHashBounds(t *testing.T) {
	r := readable{objects: map[string]string{"shop/long": `{"a":"` + strings.Repeat("x", 1<<20) + `"}`}}
	const long = "resource.Get('v1', 'configmaps', 'shop', 'long').a"
	_, without := evaluateReading(t, r, long+" != ''")
	for _, name := range []string{"md5", "sha1", "sha256", "hash.md5", "hash.sha1", "hash.sha256"} {
		got, cost := evaluateReading(t, r, name+"("+long+") != ''")
		if got != "true" || cost-without < 1<<20/10 || cost-without > 1<<20/10+10 {
			t.Errorf("%s: got %.100s for %d, want true for %d more than %d", name, got, cost, 1<<20/10, without)
		}
	}
	many := "[" + strings.Repeat("0, ", 9) + "0].all(i, sha256(" + long + ") != '')"
	if got, _ := evaluateReading(t, r, many); !strings.Contains(got, "cost") {
		t.Errorf("got %.200s, want that it costs too much", got)
	}
}

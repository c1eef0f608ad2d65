package cel

import (
	"encoding/json"
	"flag"
	"math/rand/v2"
	"strings"
	"testing"

	celgo "github.com/google/cel-go/cel"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	celconfig "k8s.io/apiserver/pkg/apis/cel"

	"github.com/fastadmit/fastadmit/corpus"
	"github.com/fastadmit/fastadmit/internal/policy/expressions"
	"github.com/fastadmit/fastadmit/internal/seed"
)

var cases = flag.Int("cases", 60, "generated cases for each feature, each an expression on an object")

// spoilt returns a review of an object that no API server accepts for a built-in
// type, only as a custom resource.
func spoilt(t testing.TB, r *rand.Rand, body []byte) []byte {
	t.Helper()
	var review struct {
		metav1.TypeMeta `json:",inline"`
		Request         map[string]json.RawMessage `json:"request"`
	}
	if err := json.Unmarshal(body, &review); err != nil {
		t.Fatal(err)
	}
	for _, name := range [...]string{"object", "oldObject"} {
		content := review.Request[name]
		if len(content) == 0 || string(content) == "null" {
			continue
		}
		var err error
		if review.Request[name], err = expressions.Spoil(r, content); err != nil {
			t.Fatal(err)
		}
	}
	content, err := json.Marshal(review)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// TestUpstreamGenerated evaluates generated expressions with kube-apiserver's
// package and with this one, with and without variables, for all features.
func TestUpstreamGenerated(t *testing.T) {
	start := seed.Of(t)
	names := corpus.Names()
	returns := [...][]*celgo.Type{Any, Bool, String, StringOrNull}
	kinds := [...]expressions.Kind{expressions.Any, expressions.Bool, expressions.String, expressions.String}
	const objects = 3 // on which an expression is evaluated
	allDone, allValues := 0, 0
	for f, feature := range expressions.Features() {
		t.Run(feature, func(t *testing.T) {
			r := rand.New(rand.NewPCG(start, uint64(f)))
			done, values := 0, 0
			for done < *cases && !t.Failed() {
				var reviews []*asked
				body := corpus.MustRead(names[r.IntN(len(names))])
				reviews = append(reviews, newAsked(t, body))
				for range objects - 1 {
					reviews = append(reviews, newAsked(t, spoilt(t, r, body)))
				}
				of := reviews[r.IntN(len(reviews))].attributes
				g := expressions.New(
					r,
					map[string]any{
						"object": contentOf(of.VersionedObject), "oldObject": contentOf(of.VersionedOldObject), "params": params,
					},
				)
				p := new(expressionsOf)
				for _, name := range []string{"a", "b", "a", "c"}[:r.IntN(5)] {
					kind := kinds[r.IntN(len(kinds))]
					text := g.Expression(feature, kind)
					if len(p.variables) > 1 && strings.Contains(text, "variables") { // kube-apiserver crashes on cycles
						continue
					}
					p.variables = append(p.variables, named{name: name, text: text, returns: Any})
					g.Add(kind, "variables."+name)
				}
				for range 1 + r.IntN(4) {
					k := r.IntN(len(kinds))
					if r.IntN(3) == 0 {
						k = 0
					}
					p.conditions = append(p.conditions, named{text: g.Expression(feature, kinds[k]), returns: returns[k]})
				}
				budget := int64(celconfig.RuntimeCELCostBudget)
				if r.IntN(8) == 0 {
					budget = r.Int64N(100)
				}
				values += p.compareWithUpstream(t, budget, reviews...)
				done += len(reviews) * len(p.conditions)
			}
			t.Logf("%d of %d had a value", values, done)
			allDone += done
			allValues += values
		})
	}
	// The count of all features together: a short run has too few cases of a single
	// one.
	if !t.Failed() && allValues*8 < allDone {
		t.Errorf("got a value from %d of %d, want an eighth at least", allValues, allDone)
	}
}

func contentOf(object any) any {
	u, ok := object.(interface{ UnstructuredContent() map[string]any })
	if !ok {
		return nil
	}
	return u.UnstructuredContent()
}

//go:build !race && !poison

package match_test

import (
	"testing"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/admission/match"
	"github.com/fastadmit/fastadmit/codec"
	"github.com/fastadmit/fastadmit/corpus"
	"github.com/fastadmit/fastadmit/internal/allocs"
)

// demanding criteria match the recording only after all conditions were
// checked.
const demanding = `
rules:
- {operations: [DELETE], apiGroups: ['*'], apiVersions: ['*'], resources: ['*/*'], scope: Cluster}
- {operations: [CREATE, UPDATE], apiGroups: [''], apiVersions: [v1], resources: [pods/exec, pods], scope: Namespaced}
namespaceSelector:
  matchLabels: {env: prod}
  matchExpressions:
  - {key: env, operator: In, values: [test, prod]}
  - {key: env, operator: NotIn, values: [dev]}
  - {key: empty, operator: Exists}
  - {key: no/such, operator: DoesNotExist}
objectSelector:
  matchLabels: {app: web}
  matchExpressions:
  - {key: team, operator: In, values: [checkout, storefront]}
  - {key: pod-template-hash, operator: NotIn, values: [none]}
  - {key: app, operator: Exists}
  - {key: no/such, operator: DoesNotExist}
`

// matchers are the Matchers of ten plugins.
func matchers(t testing.TB) (ten [10]*match.Matcher) {
	for i := range ten {
		ten[i] = newMatcher(t, demanding)
	}
	return ten
}

func TestNoAllocations(t *testing.T) {
	ten := matchers(t)
	f := func(name string, edit func(*codec.Object)) {
		t.Helper()
		b := corpus.MustRead(name)
		once := func() {
			review := codec.Acquire()
			defer review.Release()
			if err := review.Decode(b); err != nil {
				t.Fatal(err)
			}
			edit(&review.Object)
			attributes := admission.AttributesOf(review)
			for _, m := range ten {
				if matched, err := m.Matches(t.Context(), review, &attributes, cluster); !matched || err != nil {
					t.Fatalf("%s: got %v, %v, want a match", name, matched, err)
				}
			}
		}
		once() // the first run grows the pooled memory
		if n := allocs.PerRun(1000, once); n != 0 {
			t.Errorf("%s: got %v allocations, want 0", name, n)
		}
	}
	f("pods-create-v1-1.json", func(*codec.Object) {})
	f("pods-create-v1-1.json", func(o *codec.Object) { o.SetString("checkout", "metadata", "labels", "team") })
}

// BenchmarkMatches matches one Pod against the criteria of ten plugins.
func BenchmarkMatches(b *testing.B) {
	ten := matchers(b)
	text := corpus.MustRead("pods-create-v1-1.json")
	review := codec.Acquire()
	defer review.Release()
	f := func(name string, ask func(*admission.Attributes)) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := review.Decode(text); err != nil {
					b.Fatal(err)
				}
				attributes := admission.AttributesOf(review)
				ask(&attributes)
			}
		})
	}
	f("none", func(*admission.Attributes) {})
	f("ten", func(a *admission.Attributes) {
		for _, m := range ten {
			if matched, err := m.Matches(b.Context(), review, a, cluster); !matched || err != nil {
				b.Fatal(matched, err)
			}
		}
	})
}

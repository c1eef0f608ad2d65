package compare

import (
	"strings"
	"testing"

	"github.com/fastadmit/fastadmit/internal/recording"
)

// patches returns the function that compares the patches of two outcomes.
func patches(object string, before, after *Outcome) func() ([]byte, error) {
	return func() ([]byte, error) {
		return Patches([]byte(`{"request":{"object":`+object+`}}`), before.Patch, after.Patch)
	}
}

func TestCompare(t *testing.T) {
	f := func(before, after Outcome, want ...string) {
		t.Helper()
		all, err := Outcomes(&before, &after, patches(`{"spec":{"a":1}}`, &before, &after))
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, d := range all {
			got = append(got, d.Change+" by "+d.Plugin+": "+d.About)
		}
		if strings.Join(got, "|") != strings.Join(want, "|") {
			t.Errorf("got  %q\nwant %q", got, want)
		}
	}
	allowed := Outcome{Decision: recording.Allowed}
	denied := Outcome{Decision: recording.Denied, Plugin: "P", Code: 403, Message: "P: no"}
	f(allowed, allowed)
	f(denied, denied)
	f(allowed, denied, "allowed to denied by P: allowed\nnow denied by P: no")
	f(denied, allowed, "denied to allowed by P: denied by P: no\nnow allowed")
	f(denied, Outcome{Decision: recording.Failed, Plugin: "Q", Message: "broken"},
		"denied to failed by Q: denied by P: no\nnow failed: broken")
	other := denied
	other.Code = 429
	f(denied, other, "message by P: denied by P: no\nnow denied by P: no")
	part := Outcome{Decision: recording.Denied, Message: "P: no", IsPart: true}
	f(part, denied)
	part.Message = "else"
	f(part, denied, "message by P: denied: else\nnow denied by P: no")

	warned := allowed
	warned.Warnings = []string{"P: careful"}
	f(allowed, warned, `warnings by P: warnings ""`+"\nnow "+`"P: careful"`)
	f(Outcome{Decision: recording.Allowed, IsPart: true}, warned)

	patched := func(patch string) Outcome {
		return Outcome{Decision: recording.Allowed, Patch: []byte(patch), PatchedBy: []string{"P", "Q"}}
	}
	replace := patched(`[{"op":"replace","path":"/spec/a","value":2}]`)
	f(replace, patched(`[{"op":"replace","path":"/spec","value":{"a":2}}]`))
	f(allowed, patched(`[{"op":"replace","path":"/spec/a","value":1}]`))
	f(allowed, replace, `patch by P, Q: the stored object changes by [{"value":2,"op":"replace","path":"/spec/a"}]`)
	leftOut := allowed
	leftOut.HasNoPatch = true
	f(leftOut, replace)

	bad := patched(`[{"op":"remove","path":"/none"}]`)
	_, err := Outcomes(&bad, &allowed, patches("{}", &bad, &allowed))
	if err == nil || !strings.Contains(err.Error(), "the recorded patch cannot be applied") {
		t.Errorf("got %v, want an error about the recorded patch", err)
	}
}

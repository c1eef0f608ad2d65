package replay

import (
	"bytes"
	"strings"
	"testing"

	"github.com/fastadmit/fastadmit/internal/recording"
)

// patches returns the function that compares the patches of two outcomes.
func patches(object string, before, after *outcome) func() ([]byte, error) {
	return func() ([]byte, error) {
		return comparePatches([]byte(`{"request":{"object":`+object+`}}`), before.patch, after.patch)
	}
}

func TestCompare(t *testing.T) {
	f := func(before, after outcome, want ...string) {
		t.Helper()
		all, err := compare(&before, &after, patches(`{"spec":{"a":1}}`, &before, &after))
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, d := range all {
			got = append(got, d.change+" by "+d.plugin+": "+d.about)
		}
		if strings.Join(got, "|") != strings.Join(want, "|") {
			t.Errorf("got  %q\nwant %q", got, want)
		}
	}
	allowed := outcome{decision: recording.Allowed}
	denied := outcome{decision: recording.Denied, plugin: "P", code: 403, message: "P: no"}
	f(allowed, allowed)
	f(denied, denied)
	f(allowed, denied, "allowed to denied by P: allowed\nnow denied by P: no")
	f(denied, allowed, "denied to allowed by P: denied by P: no\nnow allowed")
	f(denied, outcome{decision: recording.Failed, plugin: "Q", message: "broken"},
		"denied to failed by Q: denied by P: no\nnow failed: broken")
	other := denied
	other.code = 429
	f(denied, other, "message by P: denied by P: no\nnow denied by P: no")
	part := outcome{decision: recording.Denied, message: "P: no", isPart: true}
	f(part, denied)
	part.message = "else"
	f(part, denied, "message by P: denied: else\nnow denied by P: no")

	warned := allowed
	warned.warnings = []string{"P: careful"}
	f(allowed, warned, `warnings by P: warnings ""`+"\nnow "+`"P: careful"`)
	f(outcome{decision: recording.Allowed, isPart: true}, warned)

	patched := func(patch string) outcome {
		return outcome{decision: recording.Allowed, patch: []byte(patch), patchedBy: []string{"P", "Q"}}
	}
	replace := patched(`[{"op":"replace","path":"/spec/a","value":2}]`)
	f(replace, patched(`[{"op":"replace","path":"/spec","value":{"a":2}}]`))
	f(allowed, patched(`[{"op":"replace","path":"/spec/a","value":1}]`))
	f(allowed, replace, `patch by P, Q: the stored object changes by [{"value":2,"op":"replace","path":"/spec/a"}]`)
	leftOut := allowed
	leftOut.hasNoPatch = true
	f(leftOut, replace)

	bad := patched(`[{"op":"remove","path":"/none"}]`)
	_, err := compare(&bad, &allowed, patches("{}", &bad, &allowed))
	if err == nil || !strings.Contains(err.Error(), "the recorded patch cannot be applied") {
		t.Errorf("got %v, want an error about the recorded patch", err)
	}
}

func TestReadLine(t *testing.T) {
	var got []string
	from := source{send: func(r record) bool {
		got = append(got, r.fault.Error())
		return true
	}}
	long := `{"apiVersion":"audit.k8s.io/v1"` + strings.Repeat(" ", fileBytesMax) + "\n"
	if !from.stream("a", strings.NewReader(long+`{"apiVersion":"audit.k8s.io/v2"}`)) {
		t.Error("got no end")
	}
	if len(got) != 2 || !strings.Contains(got[0], "got a line of more than") || !strings.Contains(got[1], "audit.k8s.io/v2") {
		t.Errorf("got %q", got)
	}
	got = got[:0]
	from.stream("a", strings.NewReader(strings.TrimSuffix(long, "\n")))
	if len(got) != 1 || !strings.Contains(got[0], "got a line of more than") {
		t.Errorf("at the end: got %q", got)
	}
	got = got[:0]
	if !from.stream("b", bytes.NewReader(bytes.Repeat([]byte("# x\n"), fileBytesMax/4+1))) || len(got) != 1 ||
		!strings.Contains(got[0], "got more than 33554432 bytes") {
		t.Errorf("got %q", got)
	}
}

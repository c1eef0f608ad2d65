package cel

import (
	"slices"
	"testing"

	"k8s.io/apiserver/pkg/cel/mutation"
)

// TestPatchTypesUpstream compares the fields of a JSONPatch with upstream's.
func TestPatchTypesUpstream(t *testing.T) {
	want, _ := new(mutation.JSONPatchType).FieldNames()
	got, ok := new(patchTypes).FindStructFieldNames("JSONPatch")
	if slices.Sort(want); !ok || !slices.Equal(slices.Sorted(slices.Values(got)), want) {
		t.Errorf("got %v, %v, want %v", got, ok, want)
	}
	if got, ok := new(patchTypes).FindStructFieldNames("Object.spec"); got != nil || !ok {
		t.Errorf("got %v, %v of an Object, want none", got, ok)
	}
}

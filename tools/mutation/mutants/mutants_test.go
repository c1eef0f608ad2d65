package mutants

import (
	"slices"
	"testing"
)

// with enables a mutant until the test ends.
func with(t *testing.T, mutant int) {
	before := active
	active = mutant
	t.Cleanup(func() { active = before })
}

// TestComparisons checks all results of comparing 1 with 0, 1 and 2, for the original and
// for the mutants 10, 11 and 12.
func TestComparisons(t *testing.T) {
	const id = 10
	f := func(name string, compare func(id, a, b int) bool, want map[int][3]bool) {
		t.Helper()
		for mutant, want := range want {
			active = mutant
			if got := [3]bool{compare(id, 1, 0), compare(id, 1, 1), compare(id, 1, 2)}; got != want {
				t.Errorf("%s, mutant %d: got %v, want %v", name, mutant, got, want)
			}
		}
	}
	with(t, 0)
	always, never := [3]bool{true, true, true}, [3]bool{}
	less, lessEqual := [3]bool{false, false, true}, [3]bool{false, true, true}
	greater, greaterEqual := [3]bool{true, false, false}, [3]bool{true, true, false}
	f("<", Less[int], map[int][3]bool{0: less, 9: less, 10: always, 11: never, 12: lessEqual, 13: less})
	f("<=", LessEqual[int], map[int][3]bool{0: lessEqual, 9: lessEqual, 10: always, 11: never, 12: less, 13: lessEqual})
	f(">", Greater[int], map[int][3]bool{0: greater, 9: greater, 10: always, 11: never, 12: greaterEqual, 13: greater})
	f(">=", GreaterEqual[int], map[int][3]bool{0: greaterEqual, 9: greaterEqual, 10: always, 11: never, 12: greater, 13: greaterEqual})
}

// cloned makes the result of Clone escape.
var cloned string

func TestValues(t *testing.T) {
	with(t, 5)
	if Is(4) || !Is(5) || Bool(6, true) != true || !Bool(5, false) || Bool(4, true) {
		t.Error("Is or Bool is wrong")
	}
	if Int(5, 7) != 8 || Int(6, uint8(7)) != 7 {
		t.Error("Int is wrong")
	}
	if got := Drop(4, []int{1, 2, 3}); !slices.Equal(got, []int{1, 3}) {
		t.Errorf("got %v, want it without the second", got)
	}
	for _, id := range []int{2, 6} {
		if got := Drop(id, []int{1, 2, 3}); !slices.Equal(got, []int{1, 2, 3}) {
			t.Errorf("got %v of the mutants from %d, want all", got, id)
		}
	}
	text, list := "text", []byte("list")
	for id, want := range map[int]float64{5: 0, 6: 1} {
		if got := testing.AllocsPerRun(100, func() { cloned = Clone(id, text) }); got != want || cloned != text {
			t.Errorf("Clone(%d): got %q with %v allocations, want %v", id, cloned, got, want)
		}
	}
	if &CloneSlice(5, list)[0] != &list[0] || &CloneSlice(6, list)[0] == &list[0] {
		t.Error("CloneSlice is wrong")
	}
}

func TestRule(t *testing.T) {
	type rule struct {
		Name       string
		Operations []string
	}
	with(t, 5)
	f := func(id int, operations, want []string) {
		t.Helper()
		given := rule{"a", slices.Clone(operations)}
		if got := Rule(id, given); !slices.Equal(got.Operations, want) || got.Name != "a" || !slices.Equal(given.Operations, operations) {
			t.Errorf("%d: got %v of %v, want %v", id, got, given, want)
		}
	}
	f(5, []string{"CREATE", "UPDATE"}, []string{"UPDATE"})
	f(4, []string{"CREATE", "UPDATE"}, []string{"CREATE"})
	f(4, []string{"CREATE"}, []string{"CREATE"})
	f(3, []string{"CREATE", "UPDATE"}, []string{"CREATE", "UPDATE"})
	f(6, []string{"CREATE", "UPDATE"}, []string{"CREATE", "UPDATE"})
}

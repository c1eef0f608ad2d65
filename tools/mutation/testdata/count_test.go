package count

import "testing"

func TestPositive(t *testing.T) {
	if !Positive(1) || Positive(-1) {
		t.Error("wrong")
	}
}

func TestSum(t *testing.T) {
	if sum, err := Sum([]int{1, 2, -1}); sum != 2 || err != nil {
		t.Error(sum, err)
	}
	if _, err := Sum([]int{-3}); err == nil {
		t.Error("no error")
	}
}

func TestKeep(t *testing.T) {
	if Keep("a"); Kept != "a" {
		t.Error(Kept)
	}
}

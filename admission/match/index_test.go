package match

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fastadmit/fastadmit/codec"
)

// TestIndexRepeatedLabels has an object with the same label many times, and many Matchers that
// require it. Each Matcher is found only once; otherwise the result would take gigabytes.
func TestIndexRepeatedLabels(t *testing.T) {
	m, err := New(&Criteria{ObjectSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"k": "x"}}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	entries := make([]Entry, 100)
	for i := range entries {
		entries[i].Matcher = m
	}
	index := NewIndex(entries)
	review := codec.Acquire()
	defer review.Release()
	body := `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"1","object":{"metadata":{"labels":{` +
		strings.Repeat(`"k":"x",`, 1000) + `"k":"x"}}}}}`
	if err := review.Decode([]byte(body)); err != nil {
		t.Fatal(err)
	}
	if found := index.items.ofObject(&review.Object, nil); len(found) != len(entries) {
		t.Errorf("got %d places, want %d", len(found), len(entries))
	}
}

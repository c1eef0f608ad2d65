package protobuf_test

import (
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fastadmit/fastadmit/internal/protobuf"
)

// TestAppendSelected selects and drops fields of a ServiceAccount.
func TestAppendSelected(t *testing.T) {
	whole := corev1.ServiceAccount{
		ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "n", Labels: map[string]string{"x": "y"}},
		Secrets:    []corev1.ObjectReference{{Name: "s", Kind: "Secret"}, {Name: "t"}}, AutomountServiceAccountToken: new(true),
	}
	message, err := whole.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	f := func(selection protobuf.Selection, drop bool, want corev1.ServiceAccount) {
		t.Helper()
		selected, err := protobuf.AppendSelected(nil, message, selection, drop, len(message))
		var got corev1.ServiceAccount
		if err == nil {
			err = got.Unmarshal(selected)
		}
		if err != nil || got.String() != want.String() {
			t.Errorf("got %v, %v, want %v", got.String(), err, want.String())
		}
	}
	f(nil, false, corev1.ServiceAccount{})
	f(nil, true, whole)
	f(protobuf.Selection{1: {1: nil}, 2: {3: nil}}, false, corev1.ServiceAccount{
		ObjectMeta: metav1.ObjectMeta{Name: "a"}, Secrets: []corev1.ObjectReference{{Name: "s"}, {Name: "t"}},
	})
	f(protobuf.Selection{4: nil}, false, corev1.ServiceAccount{AutomountServiceAccountToken: new(true)})
	dropped := *whole.DeepCopy()
	dropped.Labels, dropped.AutomountServiceAccountToken = nil, nil
	f(protobuf.Selection{1: {11: nil}, 4: nil}, true, dropped)
	for end := 1; end < len(message); end++ {
		if _, err := protobuf.AppendSelected(nil, message[:end], protobuf.Selection{1: {1: nil}}, false, end); err == nil && end < 10 {
			t.Errorf("got no error of %d bytes", end)
		}
	}
}

// TestAppendSelectedBound stops where the selected fields become too long, whatever follows. Messages in it
// keep their lengths, which have one byte or two.
func TestAppendSelectedBound(t *testing.T) {
	whole := corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: strings.Repeat("n", 200)}}
	for range 100 {
		whole.Secrets = append(whole.Secrets, corev1.ObjectReference{Name: "s", Kind: strings.Repeat("k", 200)})
	}
	message, err := whole.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	all, err := protobuf.AppendSelected(nil, message, protobuf.Selection{1: {1: nil}, 2: {1: nil, 3: nil}}, false, len(message))
	if err != nil {
		t.Fatal(err)
	}
	var got corev1.ServiceAccount
	if err := got.Unmarshal(all); err != nil || got.Namespace != "" || got.Name != "a" || len(got.Secrets) != 100 ||
		got.Secrets[99] != whole.Secrets[99] {
		t.Errorf("got %v, %v", got, err)
	}
	f := func(message []byte, selection protobuf.Selection, drop bool, most int, want error) {
		t.Helper()
		got, err := protobuf.AppendSelected(make([]byte, 0, len(message)), message, selection, drop, most)
		if !errors.Is(err, want) || len(got) > most+10 {
			t.Errorf("at most %d: got %d bytes, %v, want %v", most, len(got), err, want)
		}
	}
	selection := protobuf.Selection{1: {1: nil}, 2: {1: nil, 3: nil}}
	f(message, selection, false, len(all), nil)
	f(message, selection, false, len(all)-1, protobuf.ErrTooLong)
	f(message, nil, true, len(message), nil)
	f(message, nil, true, len(message)-1, protobuf.ErrTooLong)
	f(append(message, 0xff), selection, false, len(all)-1, protobuf.ErrTooLong) // what follows is not read
}

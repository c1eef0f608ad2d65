package protobuf_test

import (
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
		selected, err := protobuf.AppendSelected(nil, message, selection, drop)
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
		if _, err := protobuf.AppendSelected(nil, message[:end], protobuf.Selection{1: {1: nil}}, false); err == nil && end < 10 {
			t.Errorf("got no error of %d bytes", end)
		}
	}
}

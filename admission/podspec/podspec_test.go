package podspec_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/fastadmit/fastadmit/admission/admissiontest"
	"github.com/fastadmit/fastadmit/admission/podspec"
	"github.com/fastadmit/fastadmit/codec"
)

// TestContainers ends an iteration early.
func TestContainers(t *testing.T) {
	review := codec.Acquire()
	defer review.Release()
	object := `{"metadata":{"name":"web"},"spec":{"containers":[{"name":"a"},{"name":"b"}],"initContainers":[{"name":"i"}],` +
		`"ephemeralContainers":[{"name":"e"}]}}`
	if err := review.Decode(admissiontest.Body(codec.Create, "v1/pods", object)); err != nil {
		t.Fatal(err)
	}
	var paths []string
	for container := range podspec.Containers(review.Object.Get("spec")) {
		paths = append(paths, container.Path().String()+" "+container.Get("name").String())
	}
	want := []string{"spec.initContainers[0] i", "spec.containers[0] a", "spec.containers[1] b", "spec.ephemeralContainers[0] e"}
	if !slices.Equal(paths, want) {
		t.Errorf("got %q, want %q", paths, want)
	}
	for container := range podspec.Containers(review.Object.Get("spec")) {
		if container.Get("name").EqualString("a") {
			break
		}
	}
	if got := podspec.Forbidden(review, errors.New("no")).Error(); got != `pods "web" is forbidden: no` {
		t.Errorf("got %s", got)
	}
}

package extendedresourcetoleration

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"
)

func TestIsExtended(t *testing.T) {
	f := func(resource string, want bool) {
		t.Helper()
		if got := isExtended(resource); got != want {
			t.Errorf("%q: got %v, want %v", resource, got, want)
		}
		checkIsExtended(t, resource)
	}

	f("example.com/device", true)
	f("example.com/Device_1.x-y", true)
	f("vendor/x", true)
	f("1.2.3/4", true)
	f("kubernetes.io.example.com/x", true)
	f("hugepages-2mi.example.com/x", true)
	f("xrequests.example.com/x", true)
	f("requests/x", true)

	// Resources of Kubernetes: without a domain, or in its domains.
	f("cpu", false)
	f("hugepages-2Mi", false)
	f("attachable-volumes-aws-ebs", false)
	f("kubernetes.io/x", false)
	f("x.kubernetes.io/x", false)
	f("notkubernetes.io/x", false)

	// Names in quotas.
	f("requests.example.com/x", false)
	f("requests./x", false)

	// Not qualified names.
	f("", false)
	f("/", false)
	f("/x", false)
	f("example.com/", false)
	f("example.com/x/y", false)
	f("Example.com/x", false)
	f("example..com/x", false)
	f(".example.com/x", false)
	f("example.com./x", false)
	f("-example.com/x", false)
	f("example-.com/x", false)
	f("example.-com/x", false)
	f("example.com-/x", false)
	f("example_1.com/x", false)
	f("example.com/-x", false)
	f("example.com/x.", false)
	f("example.com/x y", false)
	f("example.com/x\n", false)
	f("bücher.example/x", false)
	f("example.com/ü", false)

	// Limits of lengths; "requests." counts.
	f(strings.Repeat("a", 244)+"/x", true)
	f(strings.Repeat("a", 245)+"/x", false)
	f("example.com/"+strings.Repeat("a", 63), true)
	f("example.com/"+strings.Repeat("a", 64), false)
}

// TestIsExtendedShort compares isExtended with upstream on all short names of the
// significant characters.
func TestIsExtendedShort(t *testing.T) {
	const length = 5
	var name [length]byte
	var try func(n int)
	try = func(n int) {
		checkIsExtended(t, string(name[:n]))
		if n == length {
			return
		}
		for _, c := range []byte("a0A-_./") {
			name[n] = c
			try(n + 1)
		}
	}
	try(0)
}

// TestIsExtendedBytes compares isExtended with upstream on each byte, at the start and in
// the middle of names.
func TestIsExtendedBytes(t *testing.T) {
	for c := range 256 {
		b := string([]byte{byte(c)})
		for _, resource := range []string{b + "/x", "x" + b + "x/x", "x/" + b, "x/x" + b + "x"} {
			checkIsExtended(t, resource)
		}
	}
}

func FuzzIsExtended(f *testing.F) {
	for _, resource := range []string{"cpu", "example.com/device", "kubernetes.io/x", "requests.example.com/x", "a.b-c/D_e"} {
		f.Add(resource)
	}
	f.Fuzz(func(t *testing.T, resource string) { checkIsExtended(t, resource) })
}

// checkIsExtended compares isExtended with upstream.
func checkIsExtended(t *testing.T, resource string) {
	t.Helper()
	native := !strings.Contains(resource, "/") || strings.Contains(resource, "kubernetes.io/")
	want := !native && !strings.HasPrefix(resource, "requests.") &&
		len(validation.IsQualifiedName("requests."+resource)) == 0
	if got := isExtended(resource); got != want {
		t.Errorf("%q: got %v, upstream has %v", resource, got, want)
	}
}

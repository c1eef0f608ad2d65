package customresource_test

import (
	"fmt"
	"testing"

	"github.com/fastadmit/fastadmit/internal/customresource"
)

// TestValidateConfig allows two versions, and rejects the fields of one in the
// other.
func TestValidateConfig(t *testing.T) {
	f := func(apiVersion, kind string, isSet bool, want string) {
		t.Helper()
		err := customresource.ValidateConfig(apiVersion, kind, "Wanted", customresource.ConfigField{Name: "a"},
			customresource.ConfigField{Name: "b", IsSet: isSet}).ToAggregate()
		if got := fmt.Sprint(err); err == nil && want != "" || err != nil && got != want {
			t.Errorf("%s %s: got %s, want %s", apiVersion, kind, got, want)
		}
	}
	const kind, version = `kind: Unsupported value: "Other": supported values: "Wanted"`,
		`apiVersion: Unsupported value: "v1": supported values: "apiserver.config.k8s.io/v1"`
	f(customresource.OwnVersion, "Wanted", true, "")
	f(customresource.UpstreamVersion, "Wanted", false, "")
	f(customresource.UpstreamVersion, "Wanted", true, "b: Forbidden: wants apiVersion fastadmit.io/v1alpha1")
	f(customresource.OwnVersion, "Other", true, kind)
	f("v1", "Wanted", true, version)
}

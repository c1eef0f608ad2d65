package twins

import (
	"maps"
	"slices"
	"testing"

	"github.com/fastadmit/fastadmit/e2e/tables"
	"github.com/fastadmit/fastadmit/e2e/tally"
	"github.com/fastadmit/fastadmit/handlers"
)

const ownersPlugin = "OwnerReferencesPermissionEnforcement"

// permissionPlugins are the plugins that check permissions.
var permissionPlugins = []string{ownersPlugin, "CertificateApproval", "CertificateSigning", "ClusterTrustBundleAttest"}

// TestPermissions is TestTwins for plugins that check permissions. Users have those of rbac.yaml.
func TestPermissions(t *testing.T) {
	t.Parallel()
	flags := maps.Clone(resources)
	flags["authorization-mode"] = "RBAC"
	tw := startWith(t, flags)
	rbac, err := tables.Read("../testdata/rbac.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range tw.off {
		for _, c := range rbac {
			if err := create(s, c.New()); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, p := range handlers.InTree(handlers.DefaultOptions()) {
		if !slices.Contains(permissionPlugins, p.Name) {
			continue
		}
		t.Run(p.Name, func(t *testing.T) {
			row := tally.Row{Plugin: p.Name, Test: "twins"}
			tw.tables(t, p, &row)
			mustWrite(t, row)
		})
	}
}

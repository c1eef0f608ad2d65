package twins

import (
	"slices"
	"testing"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/e2e/cluster"
	"github.com/fastadmit/fastadmit/e2e/tables"
	"github.com/fastadmit/fastadmit/e2e/tally"
)

const ownersPlugin = "OwnerReferencesPermissionEnforcement"

// permissionPlugins are the plugins that check permissions.
var permissionPlugins = []string{ownersPlugin, "CertificateApproval", "CertificateSigning", "ClusterTrustBundleAttest"}

// TestPermissions is TestTwins for plugins that check permissions. Users have those of rbac.yaml.
func TestPermissions(t *testing.T) {
	t.Parallel()
	cluster.EachRelease(t, permissions)
}

func permissions(t *testing.T, release admission.Version) {
	tw := start(t, release, map[string]string{"authorization-mode": "RBAC"})
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
	for _, p := range pluginsOf(release) {
		if !slices.Contains(permissionPlugins, p.Name) {
			continue
		}
		t.Run(p.Name, func(t *testing.T) {
			row := tally.Row{Plugin: p.Name, Test: ofRelease("twins", release)}
			tw.tables(t, p, &row)
			mustWrite(t, row)
		})
	}
}

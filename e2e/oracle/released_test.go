package oracle_test

import (
	"regexp"
	"strings"
	"testing"
	"testing/synctest"

	"k8s.io/component-base/featuregate"
	"k8s.io/kubernetes/pkg/features"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/e2e/oracle"
	"github.com/fastadmit/fastadmit/e2e/released"
	"github.com/fastadmit/fastadmit/e2e/tally"
	"github.com/fastadmit/fastadmit/handlers"
	"github.com/fastadmit/fastadmit/internal/seed"
)

// releasedWorlds is the number of worlds of a variant, each of which is a process.
var releasedWorlds = tally.Cases(2, 20)

// TestReleased compares fastadmit, which emulates an older release, with the plugins of this release. It runs with
// the releases that e2e/run has built.
func TestReleased(t *testing.T) {
	oracle.Releases(t, func(t *testing.T, command string, release admission.Version) {
		for _, s := range suites() {
			if s.isIn(t, release) {
				t.Run(s.name, func(t *testing.T) { s.released(t, command, release) })
			}
		}
	})
}

// isIn reports whether the plugin can be compared with that of a release.
func (s *suite) isIn(t *testing.T, release admission.Version) bool {
	t.Helper()
	p := find(t, s.name, handlers.Options{Version: release})
	switch {
	case s.removed != "":
		return false
	case s.pause > 0: // it reads the clock, which two processes do not share
		return false
	case strings.HasSuffix(s.name, "Webhook"): // they call this process
		return false
	}
	return p.FirstRelease == "" || release.Has(p.FirstRelease)
}

// gateOf returns the feature gate that the plugin needs in a release, empty for none.
func (s *suite) gateOf(release admission.Version) featuregate.Feature {
	switch {
	case s.name == "PodTopologyLabels" && !release.AtLeast(1, 35):
		return features.PodTopologyLabelsAdmission
	case s.name == "NodeRestriction" && !release.AtLeast(1, 34):
		return "" // there are no PodCertificateRequests
	case s.name == "ResourceQuota" && !release.AtLeast(1, 34):
		return features.DynamicResourceAllocation // without it, there are no ResourceClaims
	case s.name == "NodeDeclaredFeatureValidator" && !release.AtLeast(1, 36):
		return features.NodeDeclaredFeatures
	}
	return s.gate
}

// withoutDifference cuts a message of NodeRestriction where it shows how two objects differ, in the format of the
// release.
func withoutDifference(message string) string {
	message, _, _ = strings.Cut(message, "status.quantity and status.conditions: ")
	return message
}

// inGoSyntax writes the characters of an imagePullPolicy as errors of fields did before 1.34 (docs/versions.md).
func inGoSyntax(message string) string {
	message = strings.NewReplacer("\x7f", `\x7f`, `\u003c`, "<", `\u003e`, ">", `\u0026`, "&").Replace(message)
	return jsonControls.ReplaceAllString(message, `\x$1`)
}

var jsonControls = regexp.MustCompile(`\\u00([01][0-9a-f])`)

func (s *suite) released(t *testing.T, command string, release admission.Version) {
	switch {
	case s.name == "NodeRestriction":
		s.message = withoutDifference
	case s.name == "AlwaysPullImages" && !release.AtLeast(1, 34):
		s.message = inGoSyntax
	}
	start := seed.Of(t)
	row := tally.Row{Plugin: s.name, Test: "generated in process, Kubernetes " + release.String()}
	for i, v := range s.variants {
		v.options.Version = release
		g := newGenerator(start + uint64(i))
		var did done
		worlds := min(releasedWorlds, v.worlds())
		for range worlds {
			var world oracle.World
			if v.world != nil {
				world = v.world(g)
			}
			world.Version = release
			n := *cases/len(s.variants)/worlds + 1
			if s.name == "ServiceAccount" { // waits for each ServiceAccount that is missing
				n = n/10 + 1
			}
			upstream, ours := s.withRelease(t, command, &v, world)
			if s.background {
				s.generated(t, n, &row, v, g, &did, upstream, ours)
				continue
			}
			synctest.Test(t, func(t *testing.T) { s.generated(t, n, &row, v, g, &did, upstream, ours) })
		}
		t.Logf("%s: %d cases, of which Kubernetes denied %d, changed %d and warned of %d", v.about, did.cases, did.denied, did.changed,
			did.warned)
	}
	mustWrite(t, row)
}

func (s *suite) withRelease(t *testing.T, command string, v *variant, world oracle.World) (upstream, ours oracle.Implementation) {
	t.Helper()
	plugin := find(t, s.name, v.options)
	if s.wrap != nil {
		plugin = s.wrap(plugin)
	}
	ours, err := oracle.NewOurs(plugin, v.config, world)
	if err != nil {
		t.Fatal(err)
	}
	seconds := v.options.Tolerations
	process, err := oracle.StartReleased(command, released.Settings{
		Plugin: s.name, Config: v.config, Gate: string(s.gateOf(v.options.Version)),
		NotReadySeconds: seconds.NotReadyTolerationSeconds, UnreachableSeconds: seconds.UnreachableTolerationSeconds,
	}, world)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := process.Stop(); err != nil {
			t.Error(err)
		}
	})
	return process, ours
}

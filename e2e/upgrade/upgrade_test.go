// Package upgrade upgrades a control plane of two API servers over three minor releases, while one process of fastadmit
// runs and Pods are created through it. No request may be lost, and what plugins decide must follow the control plane.
package upgrade

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/e2e/cluster"
	"github.com/fastadmit/fastadmit/e2e/stream"
	"github.com/fastadmit/fastadmit/e2e/tally"
)

const (
	// agreeMin is how many answers in a row must name a newer release until fastadmit follows, and interval how often it
	// asks.
	agreeMin, interval = 30, 10 * time.Second
	// mixedMin is how many answers name the newer release while the control plane has two.
	mixedMin = 2
	// followMax is how long that may take.
	followMax = 2 * agreeMin * interval

	// place is that of the row in the table of losses, behind those of the test of replicas.
	place = 50
)

// releases are those of the API servers, in the order of the upgrades.
var releases = []string{"1.35", "1.36", "1.37"}

// plane is a control plane, and fastadmit.
type plane struct {
	etcd    *cluster.Etcd
	servers [2]*cluster.APIServer // that run
	all     []member
	// Each has its own balancer, so that only fastadmit's connections change from which API server its next answer is.
	forClients, forFastadmit *balancer

	api       *cluster.APIServer // behind forClients
	fastadmit *cluster.Fastadmit
	stream    *stream.Stream
}

// member is an API server that was started.
type member struct {
	*cluster.APIServer
	release string
}

func TestUpgrade(t *testing.T) {
	if os.Getenv(tally.Full) == "" {
		t.Skipf("the older API servers are built for make e2e-full alone; %s=1 asks for it", tally.Full)
	}
	p := start(t)
	p.stream = stream.Start(p.api, time.Second)
	defer p.stream.Stop()
	p.follows(t, releases[0])
	for i, next := range releases[1:] {
		before := releases[i]
		p.replace(t, 0, next)
		await(t, "both API servers have answered", func() error {
			if n := p.answers(t, next); n < mixedMin || p.lastAnswers(t, next) > 0 {
				return fmt.Errorf("got %d answers that name %s, want %d and a last one that names %s", n, next, mixedMin, before)
			}
			return nil
		})
		p.has(t, before)
		p.replace(t, 1, next)
		await(t, "fastadmit follows", func() error { return p.shows(t, next) })
		// The answers from before the older API server's last one do not count.
		if got := p.lastAnswers(t, next); got != agreeMin {
			t.Errorf("%s was followed after %d answers in a row, want %d", next, got, agreeMin)
		}
		p.follows(t, next)
	}
	p.stream.Stop()
	row := p.stream.Result(t, "control plane upgraded")
	if err := row.Write(place); err != nil {
		t.Fatal(err)
	}
	if t.Logf("%+v", row); row.Lost > 0 || row.MutationsMissed > 0 || row.ValidationsMissed > 0 {
		t.Errorf("got %+v", row)
	}
	var followed []string
	for _, found := range anotherVersion.FindAllStringSubmatch(p.fastadmit.Log(t), -1) {
		followed = append(followed, found[1])
	}
	if !slices.Equal(followed, releases[1:]) {
		t.Errorf("got versions %q in the log, want %q", followed, releases[1:])
	}
}

// anotherVersion matches what fastadmit logs when it follows.
var anotherVersion = regexp.MustCompile(`"the API server has another version","version":"([^"]+)"`)

// start starts two API servers of the first release, and fastadmit.
func start(t *testing.T) *plane {
	t.Helper()
	p := &plane{etcd: cluster.StartEtcd(t), forClients: newBalancer(t), forFastadmit: newBalancer(t)}
	for i := range p.servers {
		p.run(t, i, releases[0])
	}
	p.balance(p.servers[:]...)
	p.api = p.servers[0].At(t, p.forClients.address)
	prepare(t, p.api)

	configuration := fmt.Appendf(nil, `apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- name: ValidatingAdmissionPolicy
  configuration: {apiVersion: apiserver.config.k8s.io/v1, kind: ValidatingAdmissionPolicyConfiguration, staticManifestsDir: %q}
`, filepath.Dir(cluster.WriteFile(t, "policies.yaml", []byte(policies))))
	plugins := []string{
		"--enable-admission-plugins=DefaultTolerationSeconds,LimitPodHardAntiAffinityTopology," + strings.Join(differing, ","),
		"--admission-control-config-file", cluster.WriteFile(t, "admission.yaml", configuration),
	}
	authority := cluster.NewAuthority(t)
	p.fastadmit = cluster.StartFastadmit(t, cluster.Binary, authority, append(plugins, "--allow-unauthenticated-writes",
		"--kubeconfig", p.servers[0].At(t, p.forFastadmit.address).Kubeconfig(t))...)
	p.api.MustKubectl(t, cluster.Manifests(t, append(plugins, "--url", p.fastadmit.URL,
		"--ca-bundle-file", cluster.WriteFile(t, "ca.crt", authority.PEM))...), "apply", "-f", "-")
	for _, s := range p.servers {
		cluster.Await(t, "the webhooks to be called", func() error { return decided(s, version(t, releases[0])) })
	}
	return p
}

func version(t *testing.T, release string) admission.Version {
	t.Helper()
	v, known, err := admission.ParseVersion(release)
	if err != nil || !known {
		t.Fatalf("got release %s, %v, want one that can be emulated", release, err)
	}
	return v
}

// auditPolicy is for the requests that asked reads.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules: [{level: Metadata, nonResourceURLs: [/version]}]
`

// run starts an API server, which is behind no balancer yet. It has what API servers have in a control plane with several:
// it ends some connections, so that each API server gets requests of each client, and it ends watches before it ends itself.
func (p *plane) run(t *testing.T, i int, release string) {
	t.Helper()
	p.servers[i] = p.etcd.StartAPIServer(t, cluster.APIServerOptions{
		Name: "apiserver-" + release, Release: version(t, release), Flags: map[string]string{
			"goaway-chance": "0.02", "shutdown-watch-termination-grace-period": "5s",
			"audit-policy-file": cluster.WriteFile(t, "audit.yaml", []byte(auditPolicy)),
		},
	})
	p.all = append(p.all, member{p.servers[i], release})
}

func (p *plane) balance(servers ...*cluster.APIServer) {
	p.forClients.use(servers...)
	p.forFastadmit.use(servers...)
}

// replace replaces an API server by one of another release. The balancers know that it ends: they ask whether it is ready.
func (p *plane) replace(t *testing.T, i int, release string) {
	t.Helper()
	p.balance(p.servers[1-i])
	p.stream.SetDown(true)
	p.servers[i].Stop()
	p.stream.SetDown(false)
	p.run(t, i, release)
	p.balance(p.servers[:]...)
	t.Logf("API server %d is %s", i, release)
}

// follows checks that fastadmit behaves as the release, as that release's own plugins do in an API server
// without webhooks.
func (p *plane) follows(t *testing.T, release string) {
	t.Helper()
	p.has(t, release)
	t.Run("in-tree-"+release, func(t *testing.T) {
		s := p.etcd.StartAPIServer(t, cluster.APIServerOptions{
			Name: "in-tree", Prefix: "in-tree", On: differing, Release: version(t, release),
		})
		prepare(t, s)
		s.MustKubectl(t, policies, "apply", "-f", "-")
		cluster.Await(t, "the plugins of "+release, func() error { return decided(s, version(t, release)) })
	})
}

// has checks what fastadmit shows, and what it decides for each API server.
func (p *plane) has(t *testing.T, release string) {
	t.Helper()
	if err := p.shows(t, release); err != nil {
		t.Error(err)
	}
	for i, s := range p.servers {
		if err := decided(s, version(t, release)); err != nil {
			t.Errorf("by API server %d: %v", i, err)
		}
	}
}

// shows returns an error unless the metric and /readyz name the release.
func (p *plane) shows(t *testing.T, release string) error {
	t.Helper()
	response, err := http.Get(p.fastadmit.Metrics + "/readyz?verbose")
	if err != nil {
		return err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if want := "[+]version ok: " + release + "\n"; !strings.Contains(string(text), want) {
		return fmt.Errorf("got /readyz\n%s, want the line %q", text, want)
	}
	if got, want := p.fastadmit.Metric(t, "fastadmit_emulated_version_minor"), version(t, release).Minor(); got != want {
		return fmt.Errorf("got the metric %d, want %d", got, want)
	}
	return nil
}

// await waits until ready returns nil, for longer than cluster.Await does.
func await(t *testing.T, what string, ready func() error) {
	t.Helper()
	for begin := time.Now(); ; time.Sleep(time.Second) {
		err := ready()
		if err == nil {
			t.Logf("%s after %s", what, time.Since(begin).Round(time.Second))
			return
		}
		if time.Since(begin) > followMax {
			t.Fatalf("waited %s until %s: %v", followMax, what, err)
		}
	}
}

// asked returns the releases that the API servers have named to fastadmit, the last one first. They write each answer
// into their audit log before they give it.
func (p *plane) asked(t *testing.T) (named []string) {
	t.Helper()
	type answer struct {
		at      time.Time
		release string
	}
	var all []answer
	for _, m := range p.all {
		events, err := m.Audit(func(e *auditv1.Event) bool {
			return strings.HasPrefix(e.RequestURI, "/version") && e.UserAgent == "fastadmit"
		})
		if err != nil {
			t.Fatal(err)
		}
		for i := range events {
			all = append(all, answer{events[i].StageTimestamp.Time, m.release})
		}
	}
	slices.SortFunc(all, func(a, b answer) int { return b.at.Compare(a.at) })
	for _, a := range all {
		named = append(named, a.release)
	}
	return named
}

// answers returns how many answers named the release.
func (p *plane) answers(t *testing.T, release string) (n int) {
	t.Helper()
	for _, named := range p.asked(t) {
		if named == release {
			n++
		}
	}
	return n
}

// lastAnswers returns how many of the last answers, in a row, named the release.
func (p *plane) lastAnswers(t *testing.T, release string) int {
	t.Helper()
	named := p.asked(t)
	if i := slices.IndexFunc(named, func(other string) bool { return other != release }); i >= 0 {
		return i
	}
	return len(named)
}

// Package contest starts the contenders, each in a process of its own, gives
// them work and sees to it that they do it right.
package contest

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/fastadmit/fastadmit/bench"
	"github.com/fastadmit/fastadmit/bench/compare/policies"
	"github.com/fastadmit/fastadmit/corpus"
)

// The contenders that have a part of their own.
const (
	Ours  = "fastadmit"
	Floor = "floor"
)

// A Contender does the works.
type Contender struct {
	// Name is that of its folder in contenders.
	Name string
	// About says what it is, in Markdown.
	About string
}

// Contenders are all of them, in the order of tables.
var Contenders = []Contender{
	{Floor, "the floor: fasthttp and TLS as in fastadmit, constant answers"},
	{Ours, "fastadmit: `fastadmit serve`"},
	{"fastjson", "fasthttp, fastjson for the whole review, jsondiff"},
	{"nethttp", "net/http, encoding/json into k8s.io/api"},
	{"controllerruntime", "sigs.k8s.io/controller-runtime v0.24.1"},
	{"kubewebhook", "slok/kubewebhook v2.7.0"},
}

// startMax bounds the wait for the line that a contender prints when it serves.
const startMax = 2 * time.Minute

// An Arena is where contenders are started.
type Arena struct {
	// CPUs says which processors generator and servers have.
	CPUs string

	dir  string
	cpus cpus
	tls  *tls.Config // of the client
}

// NewArena builds contenders into a directory, makes their certificates, and
// keeps this process off the processor that they get. The present directory must
// be in the module.
func NewArena(ctx context.Context, dir string, contenders ...Contender) (*Arena, error) {
	a := &Arena{dir: dir}
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", dir+"/")
	for _, c := range contenders {
		build.Args = append(build.Args, "github.com/fastadmit/fastadmit/bench/compare/contenders/"+c.Name)
	}
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		return nil, fmt.Errorf("cannot build the contenders: %w", err)
	}
	if err := os.Mkdir(a.clusterDir(), 0o700); err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(a.clusterDir(), "cluster.yaml"), corpus.Cluster, 0o600); err != nil {
		return nil, err
	}
	if err := a.writePolicy(); err != nil {
		return nil, fmt.Errorf("cannot write the policy: %w", err)
	}
	roots, err := writeCertificates(dir)
	if err != nil {
		return nil, fmt.Errorf("cannot make certificates: %w", err)
	}
	a.tls = &tls.Config{RootCAs: roots}
	if a.cpus, err = splitCPUs(); err != nil {
		return nil, fmt.Errorf("cannot pin the process to some processors: %w", err)
	}
	a.CPUs = a.cpus.String()
	return a, nil
}

// clusterDir is where fastadmit finds the cluster of the work "ten".
func (a *Arena) clusterDir() string { return filepath.Join(a.dir, "cluster") }

// policyConfig is the configuration of the work "policy".
const policyConfig = `apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- name: ValidatingAdmissionPolicy
  configuration:
    apiVersion: apiserver.config.k8s.io/v1
    kind: ValidatingAdmissionPolicyConfiguration
    staticManifestsDir: %q
`

func (a *Arena) policyFile() string { return filepath.Join(a.dir, "policy.yaml") }

// writePolicy writes what fastadmit reads for the work "policy".
func (a *Arena) writePolicy() error {
	manifests := filepath.Join(a.dir, "policies")
	if err := os.Mkdir(manifests, 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(manifests, "policy.yaml"), policies.Manifest, 0o600); err != nil {
		return err
	}
	return os.WriteFile(a.policyFile(), fmt.Appendf(nil, policyConfig, manifests), 0o600)
}

// Settings are how a contender is started apart from its work.
type Settings struct {
	// Key is the kind of its certificate, ECDSA if empty.
	Key string
	// Env is added to its environment.
	Env []string
}

// A Process is a contender that serves.
type Process struct {
	Contender Contender
	Work      *Work
	// Target is where it is.
	Target bench.Target

	cmd *exec.Cmd
}

var readyLine = regexp.MustCompile(`serving on (https://\S+), metrics on (http://\S+?)(,|$)`)

// Start starts a contender with a work and waits until it serves. The floor
// gets the answer that it is to give; for others, it is empty.
func (a *Arena) Start(c Contender, w *Work, settings Settings, answer []byte) (*Process, error) {
	key := settings.Key
	if key == "" {
		key = ECDSA
	}
	args := []string{"--tls-cert-file=" + a.dir + "/" + key + ".crt", "--tls-private-key-file=" + a.dir + "/" + key + ".key"}
	path := ""
	switch c.Name {
	case Ours:
		args = append([]string{"serve", "--bind-address=127.0.0.1", "--secure-port=0", "--metrics-bind-address=127.0.0.1:0",
			"--profiling", "--cluster-state-dir=" + a.clusterDir(), "--allow-unauthenticated-writes", "--enable-admission-plugins=" + strings.Join(w.Plugins, ",")}, args...)
		if w.Serves == "policy" {
			args = append(args, "--admission-control-config-file="+a.policyFile())
		}
		path = w.Path
	case Floor:
		file := filepath.Join(a.dir, w.Name+".answer")
		if err := os.WriteFile(file, answer, 0o600); err != nil {
			return nil, err
		}
		args = append(args, "--answer="+file)
	default:
		args = append(args, "--work="+w.Serves)
	}
	cmd := exec.Command(filepath.Join(a.dir, c.Name), args...)
	cmd.Env = append(os.Environ(), settings.Env...)
	log, err := os.Create(filepath.Join(a.dir, c.Name+".log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd.Stderr = log
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := a.cpus.start(cmd); err != nil {
		return nil, fmt.Errorf("cannot start %s: %w", c.Name, err)
	}
	p := &Process{Contender: c, Work: w, cmd: cmd}
	timer := time.AfterFunc(startMax, p.Stop)
	defer timer.Stop()
	line, _ := bufio.NewReader(stdout).ReadString('\n')
	ready := readyLine.FindStringSubmatch(strings.TrimSpace(line))
	if ready == nil {
		p.Stop()
		said, _ := os.ReadFile(log.Name())
		return nil, fmt.Errorf("cannot start %s: got %q, want a line that says where it serves; it said %q", c.Name, line, said)
	}
	p.Target = bench.Target{
		Name: c.Name, URL: ready[1] + path, TLS: a.tls, PID: cmd.Process.Pid,
		MetricsURL: ready[2] + "/metrics", PprofURL: ready[2] + "/debug/pprof",
	}
	return p, nil
}

// Stop ends the process.
func (p *Process) Stop() {
	p.cmd.Process.Kill() //nolint:errcheck // it has ended
	p.cmd.Wait()         //nolint:errcheck // it was killed
}

// StartAll starts contenders with a work and checks that each does it right.
// They are in the order of Contenders, those left out that are not named or do not
// do the work.
func (a *Arena) StartAll(ctx context.Context, w *Work, named func(name string) bool) ([]*Process, error) {
	var all []*Process
	err := func() error {
		ours, err := a.Start(contender(Ours), w, Settings{}, nil)
		if err != nil {
			return err
		}
		all = append(all, ours)
		answer, err := ours.Check(ctx, w)
		if err != nil {
			return err
		}
		for _, c := range Contenders {
			if c.Name == Ours || !named(c.Name) || !w.isBy(c) {
				continue
			}
			p, err := a.Start(c, w, Settings{}, answer)
			if err != nil {
				return err
			}
			all = append(all, p)
			if _, err := p.Check(ctx, w); err != nil {
				return err
			}
			if c.Name == Floor {
				all[0], all[1] = all[1], all[0]
			}
		}
		return nil
	}()
	if err != nil {
		StopAll(all)
		return nil, err
	}
	return all, nil
}

// StopAll ends processes.
func StopAll(all []*Process) {
	for _, p := range all {
		p.Stop()
	}
}

// OurContender returns fastadmit.
func OurContender() Contender { return contender(Ours) }

// FloorContender returns the floor.
func FloorContender() Contender { return contender(Floor) }

func contender(name string) Contender {
	for _, c := range Contenders {
		if c.Name == name {
			return c
		}
	}
	panic("no contender " + name)
}

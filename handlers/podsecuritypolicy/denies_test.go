package podsecuritypolicy

import (
	"strings"
	"testing"

	"github.com/fastadmit/fastadmit/admission"
	"github.com/fastadmit/fastadmit/admission/admissiontest"
	"github.com/fastadmit/fastadmit/codec"
)

// checkDenies validates a pod against one policy. Want is the fault in the message, empty if
// the pod is allowed.
func checkDenies(t *testing.T, phase admission.Phase, spec, annotations, pod, want string) {
	t.Helper()
	chain := chainOf(t, everybody, policy(t, "p", spec, annotations))
	answer := string(admissiontest.Answer(t, chain, phase, admissiontest.Body(codec.Create, pods, `{"spec":`+pod+`}`)))
	message := "unable to " + map[admission.Phase]string{admission.Mutate: "admit", admission.Validate: "validate"}[phase] +
		" pod: [" + want + "]"
	if want == "" && !strings.Contains(answer, `"allowed":true`) ||
		want != "" && !strings.Contains(strings.ReplaceAll(answer, `\"`, `"`), message) {
		t.Errorf("%s of %s\ngot %s\nwant %s", spec, pod, answer, want)
	}
}

func with(field string) string { return `{"volumes":["*"],` + field + `,` + anys + `}` }

func instead(field, value string) string {
	return strings.Replace(all, `"`+field+`":{"rule":"RunAsAny"}`, `"`+field+`":`+value, 1)
}

// TestDeniesPods has pods that violate a policy.
func TestDeniesPods(t *testing.T) {
	f := func(spec, pod, want string) {
		t.Helper()
		checkDenies(t, admission.Validate, spec, "", pod, want)
	}
	context := func(sc string) string { return `{"securityContext":` + sc + `}` }
	const at = "spec.securityContext."
	f(all, `{"hostNetwork":true}`, at+`hostNetwork: Invalid value: true: Host network is not allowed to be used`)
	f(all, `{"hostPID":true}`, at+`hostPID: Invalid value: true: Host PID is not allowed to be used`)
	f(all, `{"hostIPC":true}`, at+`hostIPC: Invalid value: true: Host IPC is not allowed to be used`)
	f(with(`"hostNetwork":true,"hostPID":true,"hostIPC":true`), `{"hostNetwork":true,"hostPID":true,"hostIPC":true}`, "")
	sysctl := func(name string) string { return context(`{"sysctls":[{"name":"` + name + `","value":"1"}]}`) }
	const sysctls = `"forbiddenSysctls":["net.ipv4.*","kernel.sem"],"allowedUnsafeSysctls":["kernel.s*","vm.max"]`
	f(with(sysctls), sysctl("kernel.shm"), "")
	f(with(sysctls), sysctl("kernel.s"), "")
	f(with(sysctls), sysctl("kernel.shm_rmid_forced"), "")
	f(with(sysctls), sysctl("vm.max"), "")
	f(with(sysctls), sysctl("vm.maximum"), `pod.spec.securityContext.sysctls[0]: Forbidden: unsafe sysctl "vm.maximum" is not allowed`)
	f(with(sysctls), sysctl("kernel.sem"), `pod.spec.securityContext.sysctls[0]: Forbidden: sysctl "kernel.sem" is not allowed`)
	f(with(sysctls), sysctl("net.ipv4.tcp_syncookies"),
		`pod.spec.securityContext.sysctls[0]: Forbidden: sysctl "net.ipv4.tcp_syncookies" is not allowed`)
	f(all, sysctl("net.ipv4.tcp_syncookies"), "")
	f(all, sysctl("kernel.sem"), `pod.spec.securityContext.sysctls[0]: Forbidden: unsafe sysctl "kernel.sem" is not allowed`)
	f(all, `{"runtimeClassName":"r"}`, "")
	f(with(`"runtimeClass":{"allowedRuntimeClassNames":["r"]}`), `{"runtimeClassName":"r"}`, "")
	f(with(`"runtimeClass":{"allowedRuntimeClassNames":["*"]}`), `{"runtimeClassName":"s"}`, "")
	f(with(`"runtimeClass":{"allowedRuntimeClassNames":["r"]}`), `{}`, "")
	f(with(`"runtimeClass":{"allowedRuntimeClassNames":["r"]}`), `{"runtimeClassName":"s"}`, `spec.runtimeClassName: Invalid value: "s"`)
	volume := func(source string) string { return `{"volumes":[{"name":"v",` + source + `}]}` }
	f(all, volume(`"flexVolume":{"driver":"d"}`), "")
	f(with(`"allowedFlexVolumes":[{"driver":"d"}]`), volume(`"flexVolume":{"driver":"d"}`), "")
	f(with(`"allowedFlexVolumes":[{"driver":"d"}]`), volume(`"flexVolume":{"driver":"e"}`),
		`spec.volumes[0].driver: Invalid value: "e": Flexvolume driver is not allowed to be used`)
	f(all, volume(`"csi":{"driver":"d"}`), "")
	f(with(`"allowedCSIDrivers":[{"name":"d"}]`), volume(`"csi":{"driver":"d"}`), "")
	f(with(`"allowedCSIDrivers":[{"name":"d"}]`), volume(`"csi":{"driver":"e"}`),
		`spec.volumes[0].csi.driver: Invalid value: "e": Inline CSI driver is not allowed to be used`)
	const groups = `{"rule":"MustRunAs","ranges":[{"min":7,"max":8}]}`
	f(instead("fsGroup", groups), context(`{"fsGroup":8}`), "")
	f(instead("fsGroup", groups), context(`{"fsGroup":9}`),
		at+`fsGroup: Invalid value: []int64{9}: group 9 must be in the ranges: [{7 8}]`)
	f(instead("supplementalGroups", groups), context(`{"supplementalGroups":[7,6]}`),
		at+`supplementalGroups: Invalid value: []int64{7, 6}: group 6 must be in the ranges: [{7 8}]`)
	f(instead("supplementalGroups", groups), context(`{"supplementalGroups":[]}`),
		at+`supplementalGroups: Invalid value: []int64{}: unable to validate empty groups against required ranges`)
	f(instead("supplementalGroups", `{"rule":"MayRunAs","ranges":[{"min":7,"max":8}]}`), context(`{"supplementalGroups":[]}`), "")
	f(all, context(`{"fsGroup":9,"supplementalGroups":[1],"seLinuxOptions":{"level":"s1"}}`), "")
	f(instead("seLinux", `{"rule":"MustRunAs","seLinuxOptions":{"level":"s0"}}`),
		`{"securityContext":{"seLinuxOptions":{"level":"s1"}},"containers":[{"name":"c",`+
			`"securityContext":{"seLinuxOptions":{"level":"s0"}}}]}`,
		at+`seLinuxOptions.level: Invalid value: "s1": must be s0`)
}

// TestEqualLevels compares SELinux levels. Those without a colon have no categories.
func TestEqualLevels(t *testing.T) {
	f := func(a, b string, want bool) {
		t.Helper()
		if got := equalLevels(a, b); got != want {
			t.Errorf("%q and %q: got %v, want %v", a, b, got, want)
		}
	}
	f("", "", true)
	f("s0", "s0", true)
	f("s0", "s0:", false)
	f("s0:", "s0", false)
	f("s0:", "s0:", true)
}

// TestDeniesProfiles has seccomp and AppArmor profiles.
func TestDeniesProfiles(t *testing.T) {
	f := func(annotations, pod, want string) {
		t.Helper()
		checkDenies(t, admission.Validate, all, annotations, pod, want)
	}
	const at = `pod.metadata.annotations[`
	profile := func(field, kind string) string {
		return `{"` + field + `":{"type":"` + kind + `","localhostProfile":"a"}}`
	}
	both := func(pod, container string) string {
		return `{"securityContext":` + pod + `,"containers":[{"name":"c","securityContext":` + container + `}]}`
	}
	seccomp := func(kind string) string { return profile("seccompProfile", kind) }
	const allowed = `"seccomp.security.alpha.kubernetes.io/allowedProfileNames":"runtime/default,localhost/a"`
	const none = ` is not an allowed seccomp profile. Valid values are runtime/default,localhost/a`
	const ofPod, ofContainer = at + `seccomp.security.alpha.kubernetes.io/pod]: Forbidden: `, at +
		`container.seccomp.security.alpha.kubernetes.io/c]: Forbidden: `
	f("", both(`{}`, `{}`), "")
	f("", `{"securityContext":`+seccomp("RuntimeDefault")+`}`, ofPod+`seccomp may not be set`)
	f("", both(`{}`, seccomp("RuntimeDefault")), ofContainer+`seccomp may not be set`)
	f(allowed, both(seccomp("RuntimeDefault"), `{}`), "")
	f(allowed, both(seccomp("RuntimeDefault"), seccomp("Localhost")), "")
	f(allowed, `{}`, ofPod+none)
	f(allowed, both(seccomp("RuntimeDefault"), seccomp("Unconfined")), ofContainer+`unconfined`+none)
	f(allowed, both(seccomp("RuntimeDefault"), `{"seccompProfile":{"type":"Localhost"}}`), ofContainer+none)
	f(`"seccomp.security.alpha.kubernetes.io/allowedProfileNames":"*"`, both(seccomp("Unconfined"), seccomp("Localhost")), "")

	apparmor := func(kind string) string { return profile("appArmorProfile", kind) }
	const names = `"apparmor.security.beta.kubernetes.io/allowedProfileNames":"runtime/default,localhost/a"`
	const other = ` is not an allowed profile. Allowed values: "runtime/default,localhost/a"`
	const forbidden = at + `container.apparmor.security.beta.kubernetes.io/c]: Forbidden: `
	f("", both(`{}`, apparmor("Unconfined")), "")
	f(names, both(`{}`, `{}`), forbidden+`AppArmor profile must be set`)
	f(names, both(`{}`, apparmor("RuntimeDefault")), "")
	f(names, both(`{}`, apparmor("Localhost")), "")
	f(names, both(apparmor("Unconfined"), apparmor("Localhost")), "")
	f(names, both(apparmor("RuntimeDefault"), `{}`), "")
	f(names, both(apparmor("RuntimeDefault"), apparmor("Unconfined")), forbidden+`unconfined`+other)
	f(names, both(`{}`, `{"appArmorProfile":{"type":"Localhost"}}`), forbidden+`Localhost`+other)
	f(names, both(`{}`, apparmor("Other")), forbidden+`Other`+other)
}

// TestDeniesContainers has containers that violate a policy.
func TestDeniesContainers(t *testing.T) {
	f := func(spec, context, want string) {
		t.Helper()
		if want != "" {
			want = "spec.containers[0].securityContext." + want
		}
		checkDenies(t, admission.Validate, spec, "", `{"containers":[{"name":"c","securityContext":`+context+`}]}`, want)
	}
	f(all, `{"privileged":true}`, `privileged: Invalid value: true: Privileged containers are not allowed`)
	f(with(`"privileged":true`), `{"privileged":true}`, "")
	const nonRoot = `{"rule":"MustRunAsNonRoot"}`
	f(instead("runAsUser", nonRoot), `{"runAsNonRoot":true}`, "")
	f(instead("runAsUser", nonRoot), `{"runAsUser":1}`, "")
	f(instead("runAsUser", nonRoot), `{"runAsUser":1,"runAsNonRoot":false}`, `runAsNonRoot: Invalid value: false: must be true`)
	f(instead("runAsUser", nonRoot), `{"runAsUser":0}`, `runAsUser: Invalid value: 0: running with the root UID is forbidden`)
	f(instead("runAsUser", nonRoot), `{"runAsUser":0,"runAsNonRoot":true}`,
		`runAsUser: Invalid value: 0: running with the root UID is forbidden`)
	f(instead("runAsUser", `{"rule":"MustRunAs","ranges":[{"min":1,"max":2}]}`), `{"runAsUser":3}`,
		`runAsUser: Invalid value: 3: must be in the ranges: [{1 2}]`)
	const selinux = `{"rule":"MustRunAs","seLinuxOptions":{"user":"u","role":"r","type":"t","level":"s0:c1,c2"}}`
	options := func(user, role, kind, level string) string {
		return `{"seLinuxOptions":{"user":"` + user + `","role":"` + role + `","type":"` + kind + `","level":"` + level + `"}}`
	}
	checkDenies(t, admission.Validate, instead("seLinux", selinux), "",
		`{"securityContext":`+options("u", "r", "t", "s0:c2,c1")+`,"containers":[{"name":"c"}]}`, "")
	f(instead("seLinux", selinux), options("x", "r", "t", "s0:c1,c2"), `seLinuxOptions.user: Invalid value: "x": must be u`)
	f(instead("seLinux", selinux), options("u", "x", "t", "s0:c1,c2"), `seLinuxOptions.role: Invalid value: "x": must be r`)
	f(instead("seLinux", selinux), options("u", "r", "x", "s0:c1,c2"), `seLinuxOptions.type: Invalid value: "x": must be t`)
	for _, level := range []string{"s0:c1", "s1:c1,c2", "s0", ""} {
		f(instead("seLinux", selinux), options("u", "r", "t", level), `seLinuxOptions.level: Invalid value: "`+level+`": must be s0:c1,c2`)
	}
	f(with(`"allowPrivilegeEscalation":false`), `{"allowPrivilegeEscalation":true}`,
		`allowPrivilegeEscalation: Invalid value: true: Allowing privilege escalation for containers is not allowed`)
	f(with(`"allowPrivilegeEscalation":false`), `{"allowPrivilegeEscalation":false}`, "")
	f(with(`"allowPrivilegeEscalation":true`), `{"allowPrivilegeEscalation":true}`, "")
	f(with(`"readOnlyRootFilesystem":true`), `{"readOnlyRootFilesystem":true}`, "")
	f(with(`"readOnlyRootFilesystem":true`), `{"readOnlyRootFilesystem":false}`,
		`readOnlyRootFilesystem: Invalid value: false: ReadOnlyRootFilesystem must be set to true`)
	f(with(`"allowedCapabilities":["A"]`), `{"capabilities":{"add":["A"]}}`, "")
	f(with(`"allowedCapabilities":["A"]`), `{"capabilities":{"add":["B"]}}`,
		`capabilities.add: Invalid value: "B": capability may not be added`)
	f(with(`"allowedCapabilities":["*"]`), `{"capabilities":{"add":["B"]}}`, "")
	f(all, `{"runAsUser":0,"runAsNonRoot":false}`, "")
	const groups = `"runAsGroup":{"rule":"MayRunAs","ranges":[{"min":7,"max":8}]}`
	f(with(groups), `{}`, "")
	f(with(groups), `{"runAsGroup":7}`, "")
	checkDenies(t, admission.Validate, with(groups), "", `{"containers":[{"name":"c","securityContext":{"runAsGroup":9}}]}`,
		`spec.containers[0].securityContext: Invalid value: []int64{9}: group 9 must be in the ranges: [{7 8}]`)
	mount := func(kind string) string {
		return `procMount: Invalid value: "` + kind + `": ProcMountType is not allowed`
	}
	f(all, `{"procMount":"Default"}`, "")
	f(all, `{"procMount":"Unmasked"}`, mount("Unmasked"))
	f(with(`"allowedProcMountTypes":["Unmasked"]`), `{"procMount":"Unmasked"}`, "")
	f(with(`"allowedProcMountTypes":["Unmasked"]`), `{}`, mount("Default"))
}

// TestDeniesPorts has host ports.
func TestDeniesPorts(t *testing.T) {
	f := func(port, want string) {
		t.Helper()
		checkDenies(t, admission.Validate, with(`"hostPorts":[{"min":80,"max":80},{"min":90,"max":91}]`), "",
			`{"containers":[{"name":"c","ports":[{"containerPort":1},{"containerPort":1,"hostPort":`+port+`}]}]}`, want)
	}
	for _, port := range []string{"0", "80", "90", "91"} {
		f(port, "")
	}
	for _, port := range []string{"1", "79", "81", "89", "92"} {
		f(port, `spec.containers[0].hostPort: Invalid value: `+port+`: Host port `+port+` is not allowed to be used. `+
			`Allowed ports: [80,90-91]`)
	}
}

// TestMutatesOnlyWhatIsMissing has fields that a policy sets, and pods that set them
// already.
func TestMutatesOnlyWhatIsMissing(t *testing.T) {
	chain := chainOf(t, everybody,
		policy(t, "p", `{"volumes":["*"],"allowPrivilegeEscalation":false,`+strings.TrimPrefix(instead("runAsUser",
			`{"rule":"MustRunAsNonRoot"}`), `{"volumes":["*"],`), ""))
	pod := func(context string) string {
		return `{"metadata":{"annotations":{"kubernetes.io/psp":"p"}},"spec":{"containers":[{"name":"c","securityContext":` +
			context + `}]}}`
	}
	admissiontest.CheckAdmit(t, chain, pods, pod(`{}`), pod(`{"runAsNonRoot":true,"allowPrivilegeEscalation":false}`))
	admissiontest.CheckAdmit(t, chain, pods, pod(`{"runAsUser":1}`), pod(`{"runAsUser":1,"allowPrivilegeEscalation":false}`))
	admissiontest.CheckAdmit(t, chain, pods, pod(`{"runAsNonRoot":true,"privileged":false}`),
		pod(`{"runAsNonRoot":true,"privileged":false,"allowPrivilegeEscalation":false}`))
	checkDenies(t, admission.Mutate, instead("runAsUser", `{"rule":"MustRunAsNonRoot"}`), "",
		`{"containers":[{"name":"c","securityContext":{"runAsNonRoot":false}}]}`,
		`spec.containers[0].securityContext.runAsNonRoot: Invalid value: false: must be true`)
}

